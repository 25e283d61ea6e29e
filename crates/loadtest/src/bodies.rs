//! Requests prepared before the run, with the answers that they should have.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::check::{self, Tolerance};
use super::tally::Ending;
use super::target::{Target, by_status};
use super::wire::Answer;

/// A body and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of them are JSON, where binary tensors follow.
    pub json: Option<usize>,
    /// The rows in it.
    pub rows: usize,
    /// The answer that it should have.
    pub expected: Option<Value>,
}

struct Prepared {
    message: Vec<u8>,
    rows: usize,
    expected: Option<Value>,
}

/// Requests that take turns.
pub struct Bodies {
    /// By the number of rows that a schedule asks for.
    by_rows: BTreeMap<usize, Vec<Prepared>>,
    tolerance: Tolerance,
}

impl Bodies {
    /// These bodies, by the number of rows that a schedule asks for; `message` makes a whole request of one.
    ///
    /// # Panics
    /// There is no body.
    pub fn new(bodies: BTreeMap<usize, Vec<Body>>, tolerance: Tolerance, message: impl Fn(&Body) -> Vec<u8>) -> Bodies {
        let prepare = |body: Body| Prepared { message: message(&body), rows: body.rows, expected: body.expected };
        let prepared = |(rows, bodies): (usize, Vec<Body>)| (rows, bodies.into_iter().map(prepare).collect::<Vec<_>>());
        let by_rows: BTreeMap<usize, Vec<Prepared>> =
            bodies.into_iter().filter(|(_, bodies)| !bodies.is_empty()).map(prepared).collect();
        assert!(!by_rows.is_empty(), "there is a body to send");
        Bodies { by_rows, tolerance }
    }

    fn of(&self, number: u64, rows: usize) -> &Prepared {
        let there = self.by_rows.get(&rows).or_else(|| self.by_rows.values().next());
        let there = there.expect("there is a body to send");
        &there[(number % there.len() as u64) as usize]
    }
}

impl Target for Bodies {
    fn request<'a>(&'a self, number: u64, rows: usize, _scratch: &'a mut Vec<u8>) -> &'a [u8] {
        &self.of(number, rows).message
    }

    fn rows(&self, number: u64, rows: usize) -> usize {
        self.of(number, rows).rows
    }

    fn judge(&self, number: u64, rows: usize, answer: &Answer<'_>) -> Ending {
        let ending = by_status(answer);
        match &self.of(number, rows).expected {
            Some(expected) if ending == Ending::Good && !check::is_expected(expected, answer.body, self.tolerance) => {
                Ending::Wrong
            }
            _ => ending,
        }
    }
}

/// The bodies of a file: one JSON text a line, or else the file as it is. A line `{"request": …, "answer": …}` has a body
/// and the answer that it should have; `expected` may hold the answers instead, one a line.
///
/// # Errors
/// What is wrong with which line.
pub fn read(file: &Path, text: &[u8], expected: Option<(&Path, &str)>) -> Result<Vec<Body>, String> {
    if text.trim_ascii().is_empty() {
        return Err(format!("{} is empty; it must hold a body, or one a line", file.display()));
    }
    let mut bodies = Vec::new();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    let parsed: Option<Vec<Value>> = lines.iter().map(|line| serde_json::from_slice(line).ok()).collect();
    match (serde_json::from_slice::<Value>(text), parsed) {
        (Ok(whole), _) => bodies.push(body(whole, text)),
        (Err(_), Some(values)) => {
            bodies.extend(values.into_iter().zip(&lines).map(|(value, line)| body(value, line)));
        }
        // Most are bodies, so one a line is meant.
        (Err(_), None) if lines.len() > 1 && 2 * readable(&lines) > lines.len() => return Err(unreadable(file, text)),
        // No JSON: whatever it is, it is sent as it is.
        _ => bodies.push(Body { bytes: text.to_vec(), json: None, rows: 1, expected: None }),
    }
    let Some((path, answers)) = expected else { return Ok(bodies) };
    let answers: Vec<&str> = answers.lines().filter(|line| !line.trim().is_empty()).collect();
    if answers.len() != bodies.len() {
        let (path, file, there, bodies) = (path.display(), file.display(), answers.len(), bodies.len());
        return Err(format!("{path} has {there} answers for the {bodies} bodies of {file}; give one a line for each"));
    }
    for (i, (body, answer)) in bodies.iter_mut().zip(answers).enumerate() {
        let answer = serde_json::from_str(answer).map_err(|error| format!("{}:{}: {error}", path.display(), i + 1))?;
        body.expected = Some(answer);
    }
    Ok(bodies)
}

/// How many of these are JSON.
fn readable(lines: &[&[u8]]) -> usize {
    lines.iter().filter(|line| serde_json::from_slice::<Value>(line).is_ok()).count()
}

/// Names the first line that is no JSON.
fn unreadable(file: &Path, text: &[u8]) -> String {
    let lines = text.split(|byte| *byte == b'\n').zip(1..).filter(|(line, _)| !line.trim_ascii().is_empty());
    let wrong = lines.filter_map(|(line, number)| Some((number, serde_json::from_slice::<Value>(line).err()?))).next();
    let (number, why) = wrong.map_or((0, String::new()), |(number, error)| (number, error.to_string()));
    format!("{}:{number}: {why}; the others are bodies, one a line", file.display())
}

fn body(value: Value, text: &[u8]) -> Body {
    if let Value::Object(mut fields) = value {
        if fields.len() == 2 && fields.contains_key("request") && fields.contains_key("answer") {
            let request = fields.remove("request").unwrap_or_default();
            let bytes = request.to_string().into_bytes();
            return Body { rows: rows(&request), bytes, json: None, expected: fields.remove("answer") };
        }
        let rows = rows(&Value::Object(fields));
        return Body { bytes: text.trim_ascii().to_vec(), json: None, rows, expected: None };
    }
    Body { bytes: text.trim_ascii().to_vec(), json: None, rows: 1, expected: None }
}

/// The rows of a request of the Open Inference Protocol or of TensorFlow Serving; 1 of anything else.
fn rows(request: &Value) -> usize {
    let shape = request["inputs"][0]["shape"][0].as_u64().map(|rows| rows as usize);
    shape.or_else(|| request["instances"].as_array().map(Vec::len)).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bodies(text: &str, expected: Option<&str>) -> Result<Vec<Body>, String> {
        let expected = expected.map(|text| (Path::new("answers"), text));
        read(Path::new("bodies"), text.as_bytes(), expected)
    }

    #[test]
    fn a_file_is_one_body_or_one_a_line() {
        let whole = "{\n \"inputs\": [{\"shape\": [3, 2]}]\n}\n";
        let found = bodies(whole, None).unwrap();
        assert_eq!((found.len(), found[0].rows), (1, 3));
        let found = bodies("{\"instances\":[1,2]}\n\n[1]\n", None).unwrap();
        assert_eq!(found.iter().map(|body| body.rows).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(found[1].bytes, b"[1]");
        let found = bodies("no JSON\nat all\n", None).unwrap();
        assert_eq!(found[0].bytes, b"no JSON\nat all\n");
        assert!(bodies(" \n", None).unwrap_err().contains("is empty"));
        // One of many that is cut off is no reason to send all as one.
        let cut = bodies("{\"x\":1}\n\n{\"x\":\n{\"x\":3}\n", None).unwrap_err();
        assert!(cut.starts_with("bodies:3: ") && cut.contains("one a line"), "{cut}");
    }

    #[test]
    fn answers_stand_beside_the_requests_or_in_a_file_of_their_own() {
        let found = bodies(r#"{"request":{"x":1},"answer":{"y":2}}"#, None).unwrap();
        assert_eq!((found[0].bytes.as_slice(), &found[0].expected), (&br#"{"x":1}"#[..], &Some(json!({"y": 2}))));
        let found = bodies("[1]\n[2]\n", Some("3\n4\n")).unwrap();
        assert_eq!(found[1].expected, Some(json!(4)));
        assert!(bodies("[1]\n[2]\n", Some("3\n")).unwrap_err().contains("1 answers for the 2 bodies"));
        assert!(bodies("[1]\n", Some("{\n")).unwrap_err().contains("answers:1"));
    }

    #[test]
    fn each_answer_is_judged_by_its_own_expectation() {
        let both = bodies("{\"request\":1,\"answer\":10}\n{\"request\":2,\"answer\":20}\n", None).unwrap();
        let target = Bodies::new(BTreeMap::from([(1, both)]), Tolerance::default(), |body| body.bytes.clone());
        let ending = |number, status, body: &str| {
            target.judge(
                number,
                1,
                &Answer { status, body: body.as_bytes(), keeps_alive: true, batch_rows: None, location: None },
            )
        };
        assert_eq!(target.request(3, 1, &mut Vec::new()), b"2");
        assert_eq!(ending(0, 200, "10"), Ending::Good);
        assert_eq!(ending(1, 200, "10"), Ending::Wrong);
        assert!(matches!(ending(1, 503, "10"), Ending::Refused { .. }));
    }
}
