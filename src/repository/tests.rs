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
    let mut look = |settings: Stamp, is_hurried| {
        let model = ModelFolder { path: "models/m".into(), settings, versions: BTreeMap::new() };
        let mut models = BTreeMap::from([("m".to_owned(), model)]);
        let before = models.clone();
        shelf.describe(&mut models, &folder, |_| is_hurried);
        shelf.before = before;
        read.load(Ordering::Relaxed)
    };
    assert_eq!([1, 1, 1, 2, 3, 3, 3].map(|settings| look(settings, false)), [0, 1, 1, 1, 1, 2, 2]);
    assert_eq!(look(4, true), 3);
}
