//! Looks at a folder of models: which versions there are, and whether their files have changed.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::plan::Stamp;
use crate::runner::malformed_name;

/// What else may lie in a model's folder.
pub const OWN_SETTINGS: &str = "model.toml";
/// The same, as Triton has it.
pub const TRITON_SETTINGS: &str = "config.pbtxt";

/// The file of a version, where nothing else is said.
const MODEL_FILE: &str = "model.onnx";

/// A model's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelFolder {
    pub(super) path: PathBuf,
    /// Of the files with its settings.
    pub(super) settings: Stamp,
    pub(super) versions: BTreeMap<u64, VersionFolder>,
}

/// A version's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionFolder {
    pub(super) path: PathBuf,
    /// Of all files in it, and of what the model's settings come to.
    pub(super) stamp: Stamp,
}

/// What a folder of models shows.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// By name.
    pub(super) models: BTreeMap<String, ModelFolder>,
    /// Those of which nothing is known, since their folders cannot be read, and why.
    pub(super) unread: BTreeMap<String, String>,
    /// What is no model, in words.
    pub(super) others: Vec<String>,
}

/// Looks at the models below `folder`. Fails where the folder cannot be read: then nothing is known, not that nothing is there.
pub(super) fn look(folder: &Path) -> io::Result<Look> {
    let Look { mut models, mut unread, mut others } = Look::default();
    for path in sorted(folder)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if is_hidden(&path) {
            continue;
        }
        if !path.is_dir() {
            if is_onnx(&path) {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let instead = format!("{stem}/1/{MODEL_FILE}");
                others.push(format!("the file {name:?} is left alone: a model is a folder, as {instead:?}"));
            }
            continue;
        }
        if let Some(message) = malformed_name(name).or_else(|| (name == "stats").then(|| "must not be 'stats'".into()))
        {
            others.push(format!("the folder {name:?} is no model: its name {message}"));
            continue;
        }
        let found = match model(&path) {
            Ok(found) => found,
            Err(error) => {
                unread.insert(name.to_owned(), format!("its folder cannot be read: {error}"));
                continue;
            }
        };
        if found.versions.is_empty() {
            others
                .push(format!("the folder '{name}' is no model: it has no folder like '1' with a {MODEL_FILE} in it"));
            continue;
        }
        models.insert(name.to_owned(), found);
    }
    Ok(Look { models, unread, others })
}

fn model(path: &Path) -> io::Result<ModelFolder> {
    let settings = [OWN_SETTINGS, TRITON_SETTINGS].map(|file| path.join(file));
    // The same files elsewhere are other files.
    let settings = stamp(settings.iter().filter(|file| file.exists()).map(PathBuf::as_path), hash(path))?;
    let mut versions = BTreeMap::new();
    for version in sorted(path)? {
        let number = version.file_name().and_then(|name| name.to_str()).and_then(number);
        let Some(number) = number.filter(|_| version.is_dir()) else { continue };
        let files: Vec<PathBuf> = sorted(&version)?.into_iter().filter(|file| !is_hidden(file)).collect();
        if !files.is_empty() {
            let stamp = stamp(files.iter().map(PathBuf::as_path), hash(path))?;
            versions.insert(number, VersionFolder { path: version, stamp });
        }
    }
    Ok(ModelFolder { path: path.to_owned(), settings, versions })
}

/// `1` is a version, `01` and `one` are none: the first would be the same number twice.
fn number(name: &str) -> Option<u64> {
    name.parse::<u64>().ok().filter(|number| number.to_string() == name)
}

fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "onnx")
}

/// What copying tools and other systems leave beside files begins with a dot: `.model.onnx.Xy12`, `._model.onnx`.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn hash(what: impl Hash) -> Stamp {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Names, lengths, times and numbers of files: one that takes the place of another may have its time and length. One that is not there, at
/// the end of a link or since it goes just now, counts by its name.
fn stamp<'a>(files: impl Iterator<Item = &'a Path>, seed: Stamp) -> io::Result<Stamp> {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    for file in files {
        let about = match fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            about => Some(about?),
        };
        let about = about.map(|about| (about.len(), (about.mtime(), about.mtime_nsec()), about.dev(), about.ino()));
        (file.file_name(), about).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The state of one file.
pub(super) fn stamp_of_file(file: &Path) -> io::Result<Stamp> {
    stamp([file].into_iter(), 0)
}

impl ModelFolder {
    /// Makes what is said of the model part of the state of its versions.
    pub(super) fn mark(&mut self, said: &str) {
        for version in self.versions.values_mut() {
            version.stamp = hash((version.stamp, said));
        }
    }
}

impl VersionFolder {
    /// The file with the model: `named` where the settings name one, else `model.onnx`, else the only file that ends in `.onnx`.
    pub(super) fn file(&self, named: Option<&str>) -> Result<PathBuf, String> {
        let is_file = |name: &str| Some(self.path.join(name)).filter(|path| path.is_file());
        if let Some(found) = is_file(named.unwrap_or(MODEL_FILE)) {
            return Ok(found);
        }
        if let Some(named) = named {
            return Err(format!("there is no file {named:?} in its folder"));
        }
        let mut onnx = sorted(&self.path).map_err(|error| format!("its folder cannot be read: {error}"))?;
        onnx.retain(|path| is_onnx(path) && !is_hidden(path) && path.is_file());
        match <[PathBuf; 1]>::try_from(onnx) {
            Ok([only]) => Ok(only),
            Err(others) if others.is_empty() => Err("its folder has no regular file that ends in .onnx".into()),
            Err(others) => Err(format!("its folder has no {MODEL_FILE}, and {} other files like that", others.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn models_are_folders_with_numbered_folders_and_any_change_of_a_file_is_seen() {
        let folder = std::env::temp_dir().join(format!("uncork-models-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for file in
            ["m/1/model.onnx", "m/12/a.onnx", "m/01/model.onnx", "m/one/model.onnx", "empty/notes", ".git/1/model.onnx"]
        {
            write(&folder, file, "a");
        }
        write(&folder, "of two/1/model.onnx", "a");
        fs::create_dir_all(folder.join("m/13")).unwrap();
        let Look { models: before, others, .. } = look(&folder).unwrap();
        assert_eq!(before.keys().collect::<Vec<_>>(), ["m"]);
        assert_eq!(before["m"].versions.keys().copied().collect::<Vec<_>>(), [1, 12]);
        assert_eq!(others.len(), 2, "{others:?}");
        assert!(before["m"].versions[&12].file(None).unwrap().ends_with("12/a.onnx"));
        assert!(before["m"].versions[&1].file(Some("b.onnx")).unwrap_err().contains("\"b.onnx\""));
        // What copying tools leave behind is neither a second file nor a version.
        for file in ["m/12/.a.onnx.tmp", "m/12/._a.onnx", "m/12/.tmp.onnx", "m/14/._model.onnx"] {
            write(&folder, file, "a");
        }
        let hidden = look(&folder).unwrap().models;
        assert!(hidden["m"].versions[&12].file(None).unwrap().ends_with("12/a.onnx"));
        assert_eq!(hidden, before, "nothing is loaded for them");
        fs::remove_dir_all(folder.join("m/14")).unwrap();
        [".a.onnx.tmp", "._a.onnx", ".tmp.onnx"]
            .iter()
            .for_each(|file| fs::remove_file(folder.join("m/12").join(file)).unwrap());
        write(&folder, "loose.onnx", "a");
        write(&folder, "._loose.onnx", "a");
        let others = look(&folder).unwrap().others.join("\n");
        assert!(
            others.contains(r#""loose.onnx" is left alone: a model is a folder, as "loose/1/model.onnx""#),
            "{others}"
        );
        assert!(!others.contains("._loose"), "{others}");
        fs::remove_file(folder.join("loose.onnx")).unwrap();
        assert_eq!(look(&folder).unwrap().models, before);
        write(&folder, "m/12/a.onnx", "ab");
        let after = look(&folder).unwrap().models;
        let stamp = |models: &BTreeMap<String, ModelFolder>, version| models["m"].versions[&version].stamp;
        assert_ne!(stamp(&after, 12), stamp(&before, 12));
        assert_eq!(stamp(&after, 1), stamp(&before, 1));
        write(&folder, "m/model.toml", "max_latency_ms = 5");
        let settings = look(&folder).unwrap().models;
        assert!(settings["m"].settings != after["m"].settings && stamp(&settings, 1) == stamp(&after, 1));
        let mut marked = settings.clone();
        marked.get_mut("m").unwrap().mark("5 ms");
        assert_ne!(stamp(&marked, 1), stamp(&settings, 1));
        // Another file of the same length and time, and a link to nowhere.
        let file = folder.join("m/1/model.onnx");
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        write(&folder, "other", "b");
        fs::File::options().write(true).open(folder.join("other")).unwrap().set_modified(time).unwrap();
        fs::rename(folder.join("other"), &file).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("m/12/link")).unwrap();
        // A loop of links cannot be read, whoever asks.
        fs::create_dir_all(folder.join("looped/1")).unwrap();
        std::os::unix::fs::symlink("a", folder.join("looped/1/a")).unwrap();
        let Look { models, unread, .. } = look(&folder).unwrap();
        assert_ne!(stamp(&models, 1), stamp(&settings, 1));
        assert_ne!(stamp(&models, 12), stamp(&settings, 12));
        assert_eq!((unread.contains_key("looped"), unread.len(), models.len()), (true, 1, 1));
        fs::remove_dir_all(&folder).unwrap();
        assert!(look(&folder).is_err());
    }
}
