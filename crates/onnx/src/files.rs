//! Reading a model's files: the model itself, and weights that it keeps in files beside it.
//!
//! A model file comes from anywhere, and the paths in it are not to be trusted: a weight is read only from a regular file
//! inside of the model's own folder, reached without links. (CVE-2022-25882 is ONNX's own reader without that rule.)

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::proto::{HERE, KeyValue, TensorProto};
use super::value::OpError;
use super::{Cause, skeleton};
use uncork_model::quote::{Quoted, QuotedPlace};

/// Largest model file, without weights in other files: what a protobuf message can have.
const MAX_FILE: u64 = 1 << 31;

/// Bytes of a tensor that a thread reads at a time.
const PIECE: usize = 4 << 20;

/// Where a model's weights are that are not in memory.
#[derive(Debug, Clone)]
pub(super) enum Files {
    /// The model came as bytes: it has no folder.
    None,
    /// The folder of the model's file, and that file.
    Beside { folder: PathBuf, own: Arc<File> },
}

/// Where the elements of a tensor are in a file.
#[derive(Debug)]
pub(super) struct Place {
    file: Arc<File>,
    /// The file's name in messages.
    name: String,
    offset: u64,
}

/// Reads a model's own file without its large weights; says also where these and its further files are.
pub(super) fn open(path: &Path) -> Result<(Vec<u8>, Files), Cause> {
    let unreadable = |reason: std::io::Error| Cause::File(reason.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    if size > MAX_FILE {
        return Err(Cause::Unreadable(format!(
            "it has {size} bytes, and an ONNX file at most {MAX_FILE}; larger models keep their weights in a file beside it \
             (save_as_external_data=True)"
        )));
    }
    let bytes = skeleton::read(&file, size).map_err(|e| match e.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            Cause::Unreadable(format!("its protobuf encoding is cut short or damaged ({e})"))
        }
        _ => unreadable(e),
    })?;
    // The model's own path may go through links; what it names may not.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((bytes, Files::Beside { folder: folder.to_owned(), own: Arc::new(file) }))
}

impl Files {
    /// Where the `length` bytes of a tensor are whose elements are in a file.
    pub(super) fn find(&self, tensor: &TensorProto, length: usize) -> Result<Place, OpError> {
        let entries = &tensor.external_data[..];
        let location = entries.iter().find(|e| e.key == "location").map(|e| e.value.as_str());
        if tensor.data_location == HERE {
            if tensor.raw_data.is_some() || entries.len() != 2 {
                return Err(OpError::new("its elements come twice"));
            }
            let Files::Beside { own, .. } = self else { return Err(OpError::new("its data is in no file")) };
            return Place::within(Arc::clone(own), "the model's file", entries, length);
        }
        let location = location.ok_or_else(|| OpError::new("its data is in another file that is not named"))?;
        let Files::Beside { folder, .. } = self else {
            return Err(OpError(format!(
                "its data is in another file, {}, and the model came without a folder",
                QuotedPlace(location)
            )));
        };
        let path = inside(folder, location)?;
        let file = File::open(&path).map_err(|e| unreadable(location, &e))?;
        Place::within(Arc::new(file), location, entries, length)
    }
}

impl Place {
    /// The place in a file that the entries name, if there are `length` bytes.
    fn within(file: Arc<File>, name: &str, entries: &[KeyValue], length: usize) -> Result<Place, OpError> {
        let number = |key: &str| {
            let number = |text: &str| {
                text.parse::<u64>().map_err(|_| OpError(format!("its {key} {} is no number", Quoted(text))))
            };
            entries.iter().find(|e| e.key == key).map(|e| number(&e.value)).transpose()
        };
        let offset = number("offset")?.unwrap_or(0);
        let size = file.metadata().map_err(|e| unreadable(name, &e))?.len();
        let declared = number("length")?.unwrap_or(size.saturating_sub(offset));
        if declared != length as u64 {
            return Err(OpError(format!(
                "its data in {} has {declared} bytes, and its shape needs {length}",
                QuotedPlace(name)
            )));
        }
        if offset.checked_add(declared).is_none_or(|end| end > size) {
            return Err(OpError(format!(
                "its data ends behind the end of {} ({size} bytes); is the file cut short?",
                QuotedPlace(name)
            )));
        }
        Ok(Place { file, name: name.to_owned(), offset })
    }

    /// Reads the bytes, as many as were looked for. Threads share a large tensor: its memory is fresh, and has to be cleared as well.
    pub(super) fn read(&self, bytes: &mut [u8]) -> Result<(), OpError> {
        let pieces = bytes.par_chunks_mut(PIECE).enumerate();
        let read = pieces.map(|(i, bytes)| read_at(&self.file, bytes, self.offset + (i * PIECE) as u64));
        read.collect::<Result<(), _>>().map_err(|e| unreadable(&self.name, &e))
    }
}

/// Fills `bytes` from a place in a file.
#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// The same where a file has one place that all who read it share.
#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};

    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock();
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes))
}

fn unreadable(name: &str, error: &std::io::Error) -> OpError {
    OpError(format!("its data in {} cannot be read: {error}", QuotedPlace(name)))
}

/// The path of a regular file inside of `folder`, no part of which is a link.
fn inside(folder: &Path, location: &str) -> Result<PathBuf, OpError> {
    let refused =
        |why: &str| OpError(format!("its data is in {}, {why}; keep it in the model's folder", QuotedPlace(location)));
    let mut path = folder.to_owned();
    for part in Path::new(location).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => continue,
            Component::ParentDir => return Err(refused("a path with '..'")),
            Component::RootDir | Component::Prefix(_) => return Err(refused("an absolute path")),
        }
        let kind = std::fs::symlink_metadata(&path);
        let kind = kind.map_err(|e| unreadable(location, &e))?;
        if kind.is_symlink() {
            return Err(refused("a link"));
        }
    }
    if path.is_file() { Ok(path) } else { Err(refused("which is not a file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uncork-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("model/deep")).expect("a temporary folder");
        std::fs::write(folder.join("secret"), b"secret!!").expect("write");
        std::fs::write(folder.join("model/weights"), b"0123456789").expect("write");
        std::fs::write(folder.join("model/deep/weights"), b"abcd").expect("write");
        folder
    }

    fn entries(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
        pairs.iter().map(|(key, value)| KeyValue { key: (*key).into(), value: (*value).into() }).collect()
    }

    fn read(folder: &Path, pairs: &[(&str, &str)], length: usize) -> Result<Vec<u8>, String> {
        let own = Arc::new(File::open(folder.join("secret")).expect("it is there"));
        let tensor = TensorProto { external_data: entries(pairs), data_location: 1, ..TensorProto::default() };
        let found = Files::Beside { folder: folder.join("model"), own }.find(&tensor, length);
        let read = found.and_then(|place| {
            let mut bytes = vec![0; length];
            place.read(&mut bytes).map(|()| bytes)
        });
        read.map_err(|e| e.0)
    }

    #[test]
    fn a_weight_is_read_from_its_place_in_a_file_beside_the_model() {
        let folder = folder("read");
        let read = |pairs: &[(&str, &str)], length| read(&folder, pairs, length).expect("it is there");
        assert_eq!(read(&[("location", "weights")], 10), b"0123456789");
        assert_eq!(read(&[("location", "./deep/weights"), ("offset", "1"), ("length", "2")], 2), b"bc");
        assert_eq!(read(&[("location", "weights"), ("offset", "6")], 4), b"6789");
        std::fs::remove_dir_all(folder).expect("remove");
    }

    #[test]
    fn nothing_outside_of_the_models_folder_is_read() {
        let folder = folder("outside");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(folder.join("secret"), folder.join("model/link")).expect("link");
            std::os::unix::fs::symlink(&folder, folder.join("model/up")).expect("link");
        }
        let absolute = folder.join("secret");
        let absolute = absolute.to_str().expect("a name in UTF-8");
        for location in ["../secret", "deep/../../secret", absolute, "link", "up/secret", "deep", "", "."] {
            let error = read(&folder, &[("location", location)], 8).expect_err(location);
            assert!(error.contains(location) && !error.contains("secret!!"), "{error}");
        }
        std::fs::remove_dir_all(folder).expect("remove");
    }

    #[test]
    fn lengths_and_places_that_do_not_fit_are_refused_before_memory_is_asked_for() {
        let folder = folder("lengths");
        let huge = u64::MAX.to_string();
        for (pairs, length) in [
            (&[("location", "weights")][..], 11),
            (&[("location", "weights"), ("offset", "8"), ("length", "4")], 4),
            (&[("location", "weights"), ("offset", &huge), ("length", "4")], 4),
            (&[("location", "weights"), ("length", &huge)], usize::MAX),
            (&[("location", "weights"), ("offset", "-1")], 4),
            (&[("location", "absent")], 4),
            (&[], 4),
        ] {
            assert!(read(&folder, pairs, length).is_err(), "{pairs:?}");
        }
        std::fs::remove_dir_all(folder).expect("remove");
    }
}
