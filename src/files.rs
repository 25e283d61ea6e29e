//! Files of settings and secrets that are read while others may write to their folders: regular ones, of a bounded length.
//!
//! A pipe in the place of one would be waited for without end, and with it whoever looks at the files that are followed.

use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes of a file that is read here: more than any configuration, and than the roots of all authorities together.
pub(crate) const MOST: u64 = 16 << 20;

/// What is in the file at `path`, which may be a link. Fails where that is no regular file, and where it has more than `most` bytes.
pub(crate) fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // To open a pipe waits for its writer otherwise. Of a regular file this changes nothing.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !about.is_file() {
        return Err(invalid("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(invalid(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// The same of a text.
pub(crate) fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|_| invalid("it is not UTF-8".to_owned()))
}

/// What tells one state of these files from another: what is in them, since times, lengths and rights may be the same or change for nothing.
pub(crate) fn state<'a>(files: impl IntoIterator<Item = &'a Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        bytes(file, MOST).ok().hash(&mut hasher);
    }
    hasher.finish()
}

/// What the looks at files have shown. A change counts once two looks have shown the same: who writes in place may be half done at one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looks {
    read: u64,
    last: u64,
}

impl Looks {
    /// Since files were read that were in this state just before.
    pub(crate) fn since(read: u64) -> Looks {
        Looks { read, last: read }
    }

    /// Whether the files are to be read now.
    pub(crate) fn are_news(&mut self, now: u64) -> bool {
        let is_settled = std::mem::replace(&mut self.last, now) == now;
        is_settled && std::mem::replace(&mut self.read, now) != now
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn files_are_read_once_for_a_change_and_not_while_they_are_written() {
        let mut looks = Looks::since(40);
        let shown = [40, 0, 20, 40, 40, 60, 60, 60, 0, 60, 60].map(|state| looks.are_news(state));
        assert_eq!(shown.map(u8::from), [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_regular_file_is_read_within_its_bound_and_nothing_else_is_or_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("uncork-files-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::fs::write(at("latin"), b"caf\xe9").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().expect("coreutils").success());
        symlink(at("pipe"), at("to-pipe")).unwrap();
        let read = |name: &str, most| {
            let ((told, read), path) = (mpsc::channel(), at(name));
            thread::spawn(move || told.send(text(&path, most).map_err(|error| error.to_string())));
            read.recv_timeout(Duration::from_secs(20)).expect("nobody is waited for")
        };
        assert_eq!((read("file", 4), read("link", 4)), (Ok("text".into()), Ok("text".into())));
        let refused = [
            ("file", "more than 3 bytes"),
            ("latin", "not UTF-8"),
            ("none", "No such file"),
            (".", "directory"),
            ("pipe", "no regular file"),
            ("to-pipe", "no regular file"),
            ("/dev/zero", "no regular file"),
        ];
        for (name, why) in refused {
            let error = read(name, if name == "file" { 3 } else { MOST }).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
