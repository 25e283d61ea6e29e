//! The files that a command writes what it found to.

use std::fs::{self, OpenOptions};
use std::path::Path;

/// Whether the file can be written, which is asked before the work: an hour of it must not end without a place for what it found. A file
/// that is there stays as it is, and none is made.
///
/// # Errors
/// What is in the way.
pub fn check(file: &Path) -> Result<(), String> {
    let about = fs::metadata(file);
    // Who reads a pipe would take its closing for the end of what comes.
    if about.as_ref().is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(file).map_err(|error| refused(file, &error))?;
    if about.is_err() {
        // If it cannot go it stays, empty, until it is written.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Writes the file anew.
///
/// # Errors
/// What is in the way.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| refused(file, &error))
}

fn refused(file: &Path, error: &std::io::Error) -> String {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.is_dir() {
        true => format!("{} cannot be written: {error}", file.display()),
        false => format!("{} cannot be written: there is no folder {}", file.display(), folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_found_before_and_what_can_be_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("uncork-output-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (kept, new) = (folder.join("kept.html"), folder.join("new.html"));
        fs::write(&kept, "what was there").expect("a file");
        assert_eq!((check(&kept), check(&new)), (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(&kept).expect("it is there"), "what was there");
        assert!(!new.exists());
        let nowhere = check(&folder.join("none/report.html")).expect_err("no folder");
        assert!(nowhere.contains("there is no folder"), "{nowhere}");
        assert!(check(&folder).is_err(), "it is a folder");
        fs::remove_dir_all(folder).expect("it is ours");
    }
}
