//! Texts: tensors of strings. They stay on the host, on every device.
//!
//! ONNX's strings are UTF-8; what callers send as bytes is checked at the door. Texts are shared, not copied, by whatever
//! picks, repeats or rearranges them.

use std::sync::Arc;

use super::value::{OpError, elements};

/// Most texts that one tensor may have: each takes 16 bytes beside its letters.
const MAX_TEXTS: usize = 1 << 24;
/// Most bytes that the letters of one made tensor may take in all, a text that comes twice counted twice. A short request
/// could otherwise be answered with all memory: texts multiply when they are joined and repeated.
const MAX_BYTES: usize = 1 << 28;

/// Refuses so many texts with so many bytes in all, if a tensor may not have as many. What makes texts longer or more asks before it does.
pub(super) fn bounded(count: usize, bytes: usize) -> Result<(), OpError> {
    match count > MAX_TEXTS || bytes > MAX_BYTES {
        false => Ok(()),
        true => Err(OpError(format!(
            "{count} texts of {bytes} bytes in all are more than a tensor may have ({MAX_TEXTS} and {MAX_BYTES})"
        ))),
    }
}

/// Counts the texts that are made, so that they end where a tensor may have no more.
#[derive(Debug, Default)]
pub(super) struct Made(usize);

impl Made {
    /// One more is made of this.
    pub(super) fn one<'a>(&mut self, text: &'a str) -> Result<&'a str, OpError> {
        self.0 += 1;
        bounded(self.0, 0).map(|()| text)
    }
}

/// A tensor of texts, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Texts {
    dims: Vec<usize>,
    texts: Vec<Arc<str>>,
}

impl Texts {
    /// A tensor; there must be as many texts as the shape has elements.
    pub(super) fn new(dims: Vec<usize>, texts: Vec<Arc<str>>) -> Result<Texts, OpError> {
        let count = elements(&dims)?;
        if count != texts.len() {
            return Err(OpError(format!("{} texts for the shape {dims:?}", texts.len())));
        }
        let bytes = texts.iter().fold(0usize, |sum, text| sum.saturating_add(text.len()));
        bounded(count, bytes)?;
        Ok(Texts { dims, texts })
    }

    /// A tensor from the bytes of its texts, which must be UTF-8.
    pub(super) fn from_bytes(dims: Vec<usize>, bytes: Vec<Vec<u8>>) -> Result<Texts, OpError> {
        let text = |(at, bytes): (usize, Vec<u8>)| match String::from_utf8(bytes) {
            Ok(text) => Ok(Arc::from(text)),
            Err(_) => Err(OpError(format!("text {at} is not UTF-8"))),
        };
        Texts::new(dims, bytes.into_iter().enumerate().map(text).collect::<Result<_, _>>()?)
    }

    /// The dimensions.
    pub(super) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The texts in row-major order.
    pub(super) fn as_slice(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// Dimensions and texts, taken apart.
    pub(super) fn into_parts(self) -> (Vec<usize>, Vec<Arc<str>>) {
        (self.dims, self.texts)
    }

    /// The same texts in another shape.
    pub(super) fn reshape(self, dims: Vec<usize>) -> Result<Texts, OpError> {
        Texts::new(dims, self.texts)
    }

    /// Bytes that the texts take.
    pub(super) fn byte_len(&self) -> usize {
        self.texts.iter().fold(0, |sum: usize, text| sum.saturating_add(text.len() + size_of::<Arc<str>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_must_fit_their_shape_and_be_utf_8() {
        let made = |dims: &[usize], bytes: &[&[u8]]| {
            Texts::from_bytes(dims.to_vec(), bytes.iter().map(|b| b.to_vec()).collect()).map_err(|e| e.0)
        };
        assert_eq!(made(&[2, 1], &["é".as_bytes(), b""]).unwrap().as_slice(), [Arc::from("é"), Arc::from("")]);
        assert_eq!(made(&[3], &[b"a"]).unwrap_err(), "1 texts for the shape [3]");
        assert_eq!(made(&[2], &[b"a", b"\xff"]).unwrap_err(), "text 1 is not UTF-8");
    }

    #[test]
    fn a_text_that_is_repeated_too_often_is_refused_before_it_is_written_out() {
        let long: Arc<str> = Arc::from("x".repeat(1 << 20));
        assert!(Texts::new(vec![256], vec![long.clone(); 256]).is_ok());
        assert!(Texts::new(vec![257], vec![long; 257]).unwrap_err().0.contains("more than a tensor may have"));
    }
}
