//! What is read of a folder of models, and when.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn settings_are_read_once_two_looks_have_shown_the_same_or_at_once_in_a_hurry() {
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let describe: Describe = Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err("is empty".into())
    });
    let folder = Folder { path: "models".into(), poll: Duration::from_secs(1), strict: false, describe };
    let mut shelf = Shelf::default();
    let mut look = |settings: Stamp, hurry| {
        let model = ModelFolder { path: "models/m".into(), settings, versions: BTreeMap::new() };
        let mut models = BTreeMap::from([("m".to_owned(), model)]);
        let before = models.clone();
        shelf.describe(&mut models, &folder, hurry);
        shelf.before = before;
        read.load(Ordering::Relaxed)
    };
    assert_eq!([1, 1, 1, 2, 3, 3, 3].map(|settings| look(settings, Hurry::None)), [0, 1, 1, 1, 1, 2, 2]);
    assert_eq!(look(4, Hurry::One("other")), 2, "a look at another is none at this");
    assert_eq!(look(5, Hurry::All), 3);
}

#[tokio::test]
async fn whoever_loads_one_model_by_name_does_not_read_what_is_half_written_of_another() {
    let path = std::env::temp_dir().join(format!("uncork-by-name-{}", std::process::id()));
    let say = |model: &str, text: &str| {
        std::fs::create_dir_all(path.join(model).join("1")).unwrap();
        std::fs::write(path.join(model).join("1/model.onnx"), "none").unwrap();
        std::fs::write(path.join(model).join(OWN_SETTINGS), text).unwrap();
    };
    ["m", "n"].iter().for_each(|model| say(model, "a"));
    let read: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&read);
    let describe: Describe = Arc::new(move |name, _| {
        noted.lock().unwrap().push(name.to_owned());
        Err("is empty".into())
    });
    let folder = Folder { path: path.clone(), poll: Duration::from_secs(3600), strict: false, describe };
    let registry = Registry::load(Vec::new()).expect("there is nothing to load");
    let repository = Repository::new(registry, Vec::new(), Some(folder));
    assert!(repository.open().is_err());
    ["m", "n"].iter().for_each(|model| say(model, "ab"));
    assert!(repository.load("m").await.is_err());
    assert_eq!(*read.lock().unwrap(), ["m", "n", "m"]);
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn nothing_is_said_any_more_of_a_folder_that_is_followed_no_more() {
    let path = std::env::temp_dir().join(format!("uncork-left-{}", std::process::id()));
    for model in ["looped", "m"] {
        std::fs::create_dir_all(path.join(model).join("1")).unwrap();
    }
    std::fs::write(path.join("m/1/model.onnx"), "none").unwrap();
    // A loop of links cannot be read, whoever asks.
    std::os::unix::fs::symlink("a", path.join("looped/1/a")).unwrap();
    let describe: Describe = Arc::new(|_, _| Err("is empty".into()));
    let folder = Folder { path: path.clone(), poll: Duration::from_secs(3600), strict: false, describe };
    let registry = Registry::load(Vec::new()).expect("there is nothing to load");
    let repository = Repository::new(registry, Vec::new(), Some(folder));
    assert!(repository.open().is_err());
    repository.unload("m").await.expect("it is known");
    assert_eq!(repository.troubles().len(), 2, "{:?}", repository.troubles());
    repository.reload(Settings::default()).await.expect("there is nothing to load");
    assert_eq!(repository.troubles(), []);
    assert!(repository.unload("m").await.is_err(), "it is known no more");
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_model_that_cannot_keep_its_cap_is_loaded_by_name_unless_that_is_an_error() {
    let source = Source::Synthetic { base: Duration::from_millis(20), per_row: Duration::ZERO };
    let spec = ModelSpec::new("slow", source, crate::registry::Caps::new(Duration::from_millis(5), 8));
    for is_strict in [false, true] {
        let registry = Registry::load(Vec::new()).expect("there is nothing to load");
        let repository = Repository::new(registry, vec![spec.clone()], None).strict(is_strict);
        let loaded = repository.load("slow").await;
        assert_eq!(matches!(loaded, Err(ChangeError::Failed(_))), is_strict, "{loaded:?}");
    }
}

#[tokio::test]
async fn the_versions_of_a_model_that_is_unloaded_are_those_that_it_would_have_now() {
    let path = std::env::temp_dir().join(format!("uncork-would-{}", std::process::id()));
    let put = |version: &str| {
        std::fs::create_dir_all(path.join("m").join(version)).unwrap();
        std::fs::write(path.join("m").join(version).join("model.onnx"), "none").unwrap();
    };
    let spec = |name: &str, version: &str| {
        let source = Source::Synthetic { base: Duration::from_millis(1), per_row: Duration::ZERO };
        let spec = ModelSpec::new(name, source, crate::registry::Caps::new(Duration::from_secs(5), 8));
        ModelSpec { version: version.to_owned(), ..spec }
    };
    let described = Described {
        policy: Policy::Latest(std::num::NonZeroUsize::new(2).unwrap()),
        spec: spec("m", ""),
        routes: Routes::default(),
        file: None,
        notes: Vec::new(),
    };
    let describe: Describe = Arc::new(move |_, _| Ok(described.clone()));
    let folder = Folder { path: path.clone(), poll: Duration::from_secs(3600), strict: false, describe };
    put("1");
    let registry = Registry::load(vec![spec("s", "1")]).expect("it is loaded");
    let repository = Repository::new(registry, vec![spec("s", "1")], Some(folder.clone()));
    assert!(repository.open().is_err(), "its file is none");
    for name in ["m", "s"] {
        repository.unload(name).await.expect("it is known");
    }
    let versions = || -> Vec<String> {
        let unloaded = repository.troubles().into_iter().filter(|trouble| trouble.is_unloaded);
        unloaded.map(|trouble| format!("{} {}", trouble.name, trouble.version)).collect()
    };
    ["2", "3"].iter().for_each(|version| put(version));
    let now = |models| Settings { models, folder: Some(folder.clone()), ..Settings::default() };
    repository.reload(now(vec![spec("s", "2"), spec("s", "3")])).await.expect("nothing is loaded");
    assert_eq!(versions(), ["m 2", "m 3", "s 2", "s 3"]);
    std::fs::remove_dir_all(path.join("m/3")).unwrap();
    repository.reload(now(vec![spec("s", "3")])).await.expect("nothing is loaded");
    assert_eq!(versions(), ["m 1", "m 2", "s 3"]);
    std::fs::remove_dir_all(path).unwrap();
}

/// A model that cannot be loaded, with the versions of which that is known.
fn broken(repository: &Repository, name: &str) -> Vec<u64> {
    let shelf = repository.0.shelf();
    shelf.broken.keys().filter(|(own, _)| own == name).map(|(_, version)| *version).collect()
}

/// It counted as a look at all others: what was half copied was loaded at the next one, or at once.
#[tokio::test]
async fn whoever_loads_one_model_by_name_looks_at_no_other() {
    let path = std::env::temp_dir().join(format!("uncork-no-other-{}", std::process::id()));
    let put = |model: &str, version: &str| {
        std::fs::create_dir_all(path.join(model).join(version)).unwrap();
        std::fs::write(path.join(model).join(version).join("model.onnx"), "half").unwrap();
    };
    ["m", "n"].iter().for_each(|model| put(model, "1"));
    let source = Source::Synthetic { base: Duration::from_millis(1), per_row: Duration::ZERO };
    let spec = ModelSpec::new("any", source, crate::registry::Caps::new(Duration::from_secs(5), 8));
    let described = Described {
        policy: Policy::Latest(std::num::NonZeroUsize::MIN),
        spec,
        routes: Routes::default(),
        file: None,
        notes: Vec::new(),
    };
    let describe: Describe = Arc::new(move |name, _| {
        Ok(Described { spec: ModelSpec { name: name.into(), ..described.spec.clone() }, ..described.clone() })
    });
    let folder = Folder { path: path.clone(), poll: Duration::from_secs(3600), strict: false, describe };
    let registry = Registry::load(Vec::new()).expect("there is nothing to load");
    let repository = Repository::new(registry, Vec::new(), Some(folder));
    assert!(repository.open().is_err(), "none of their files is a model");
    let look = || repository.0.follow_folder(&mut repository.0.shelf(), Hurry::None);
    assert_eq!((broken(&repository, "m"), broken(&repository, "n")), (vec![1], vec![1]));
    put("n", "2");
    assert!(repository.load("m").await.is_err());
    assert_eq!(broken(&repository, "n"), [1], "it is not loaded");
    look();
    assert_eq!(broken(&repository, "n"), [1], "this is the first look at it");
    assert!(repository.load("m").await.is_err());
    assert_eq!(broken(&repository, "n"), [1], "and this is none");
    look();
    assert_eq!(broken(&repository, "n"), [1, 2], "it has looked the same twice");
    std::fs::remove_dir_all(path).unwrap();
}

/// It was told that the model is bad: 400, "version 1: unloaded".
#[tokio::test]
async fn a_server_that_goes_loads_and_unloads_nothing_and_says_so() {
    let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
    let spec = ModelSpec::new("s", source, crate::registry::Caps::new(Duration::from_secs(5), 8));
    let registry = Registry::load(vec![spec.clone()]).expect("it is loaded");
    let repository = Repository::new(registry.clone(), vec![spec], None);
    repository.unload("s").await.expect("it is known");
    registry.retire();
    assert_eq!(repository.load("s").await, Err(ChangeError::ShuttingDown));
    assert_eq!(repository.unload("s").await, Err(ChangeError::ShuttingDown));
}
