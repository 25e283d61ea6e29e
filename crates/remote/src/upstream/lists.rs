//! Batches of JSON documents: TensorFlow Serving's row format, and plain lists.
//!
//! Source: <https://www.tensorflow.org/tfx/serving/api_rest>, "Specifying input tensors in row format".

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::opaque::{self, ANSWER, AnswerHead, RequestHead};
use crate::runner::RunnerError;
use crate::tensor::{Data, Tensor, Tensors};

/// How a batch of documents is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `{"instances": [document, …]}`, answered with `{"predictions": [answer, …]}`.
    Predict,
    /// `[document, …]`, answered with `[answer, …]`.
    List,
}

#[derive(Deserialize)]
struct Predictions<'a> {
    #[serde(borrow)]
    predictions: Vec<&'a RawValue>,
}

/// The body for a batch of opaque requests, each of which must be one JSON document.
pub(super) fn encode(batch: &Tensors, form: Form) -> Result<Vec<u8>, RunnerError> {
    let elements = batch.iter().next().map(|(_, tensor)| opaque::elements(tensor.data())).unwrap_or_default();
    let documents: Vec<_> = elements.iter().map(|element| document(element)).collect();
    let wrong: Vec<_> = documents
        .iter()
        .enumerate()
        .filter_map(|(row, found)| found.as_ref().err().map(|why| (row, why.clone())))
        .collect();
    if !wrong.is_empty() {
        return Err(RunnerError::Rows(wrong));
    }
    let (open, close) = match form {
        Form::Predict => (r#"{"instances":["#, "]}"),
        Form::List => ("[", "]"),
    };
    let mut body = open.as_bytes().to_vec();
    for (i, document) in documents.into_iter().flatten().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(document.as_bytes());
    }
    body.extend_from_slice(close.as_bytes());
    Ok(body)
}

/// The JSON document that an opaque request is.
fn document(element: &[u8]) -> Result<&str, String> {
    let (_, body) = opaque::decode::<RequestHead<'_>>(element).map_err(|error| error.to_string())?;
    let value: &RawValue =
        serde_json::from_slice(body).map_err(|error| format!("the body must be one JSON document: {error}"))?;
    Ok(value.get())
}

/// The answers in `body`, one for each of so many rows.
pub(super) fn decode(body: &[u8], rows: usize, form: Form) -> Result<Tensors, RunnerError> {
    let read: Result<Vec<&RawValue>, _> = match form {
        Form::Predict => serde_json::from_slice::<Predictions<'_>>(body).map(|answer| answer.predictions),
        Form::List => serde_json::from_slice(body),
    };
    let shape = match form {
        Form::Predict => r#"{"predictions": […]}"#,
        Form::List => "a list",
    };
    let answers = read.map_err(|error| RunnerError::Failed(format!("the answer is not {shape}: {error}")))?;
    if answers.len() != rows {
        return Err(RunnerError::Failed(format!("there are {} answers to {rows} requests", answers.len())));
    }
    let elements: Vec<Vec<u8>> =
        answers.iter().map(|answer| opaque::encode(&AnswerHead::default(), answer.get().as_bytes())).collect();
    let failed = |error: crate::tensor::TensorError| RunnerError::Failed(error.to_string());
    let answers = Tensor::new(vec![rows], Data::Bytes(elements)).map_err(failed)?;
    Tensors::new(vec![(ANSWER.into(), answers)]).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opaque::REQUEST;

    fn batch(bodies: &[&str]) -> Tensors {
        let elements = bodies.iter().map(|body| opaque::encode(&RequestHead::default(), body.as_bytes())).collect();
        let tensor = Tensor::new(vec![bodies.len()], Data::Bytes(elements)).expect("they fit");
        Tensors::new(vec![(REQUEST.into(), tensor)]).expect("one tensor")
    }

    #[test]
    fn documents_travel_as_they_came_and_answers_are_split() {
        let requests = batch(&[r#"{"a": 1}"#, " [2, 3] "]);
        assert_eq!(encode(&requests, Form::Predict).unwrap(), br#"{"instances":[{"a": 1},[2, 3]]}"#);
        assert_eq!(encode(&requests, Form::List).unwrap(), br#"[{"a": 1},[2, 3]]"#);
        let answers = decode(br#"{"predictions": [{"b":1}, 2]}"#, 2, Form::Predict).unwrap();
        let (_, tensor) = answers.iter().next().unwrap();
        let bodies: Vec<_> =
            opaque::elements(tensor.data()).iter().map(|e| opaque::decode::<AnswerHead<'_>>(e).unwrap().1).collect();
        assert_eq!(bodies, [&br#"{"b":1}"#[..], b"2"]);
    }

    #[test]
    fn bad_documents_are_named_and_wrong_answers_fail() {
        let Err(RunnerError::Rows(rows)) = encode(&batch(&["1", "{", "1 2"]), Form::List) else {
            panic!("two are bad")
        };
        assert_eq!(rows.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2]);
        let why = decode(b"[1]", 2, Form::List).unwrap_err().to_string();
        assert_eq!(why, "there are 1 answers to 2 requests");
        assert!(decode(b"[1]", 1, Form::Predict).unwrap_err().to_string().contains("predictions"));
    }
}
