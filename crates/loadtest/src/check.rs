//! Whether an answer is the expected one.

use serde_json::Value;

/// How far a number may be off: the larger of a distance and a share of the expected one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Distance.
    pub absolute: f64,
    /// Share of the expected number.
    pub relative: f64,
}

impl Default for Tolerance {
    /// What float32 models differ by from one machine, or one batch size, to another.
    fn default() -> Tolerance {
        Tolerance { absolute: 1e-4, relative: 1e-3 }
    }
}

/// Whether a body says what is expected. Objects may say more than is expected, as answers have ids and versions; a list
/// stands for the `outputs` of an answer.
pub(super) fn is_expected(expected: &Value, body: &[u8], tolerance: Tolerance) -> bool {
    let Ok(found) = serde_json::from_slice::<Value>(body) else { return false };
    let found = match (expected, &found) {
        (Value::Array(_), Value::Object(fields)) => fields.get("outputs").unwrap_or(&found),
        _ => &found,
    };
    is_close(expected, found, tolerance)
}

fn is_close(expected: &Value, found: &Value, tolerance: Tolerance) -> bool {
    match (expected, found) {
        (Value::Number(expected), Value::Number(found)) => {
            let (Some(expected), Some(found)) = (expected.as_f64(), found.as_f64()) else { return false };
            (expected - found).abs() <= tolerance.absolute.max(tolerance.relative * expected.abs())
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(expected, found)| is_close(expected, found, tolerance))
        }
        (Value::Object(expected), Value::Object(found)) => expected
            .iter()
            .all(|(key, expected)| found.get(key).is_some_and(|found| is_close(expected, found, tolerance))),
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_may_be_a_little_off_and_objects_may_say_more() {
        let expected = json!({"outputs": [{"name": "y", "data": [1.0, -200.0, 0.0]}]});
        for (found, is_good) in [
            (json!({"id": "7", "outputs": [{"name": "y", "shape": [3], "data": [1.00005, -200.1, 0]}]}), true),
            (json!({"outputs": [{"name": "y", "data": [1.01, -200.0, 0.0]}]}), false),
            (json!({"outputs": [{"name": "y", "data": [1.0, -200.0]}]}), false),
            (json!({"outputs": [{"name": "z", "data": [1.0, -200.0, 0.0]}]}), false),
            (json!({"outputs": [{"name": "y", "data": [1.0, "-200", 0.0]}]}), false),
            (json!({"error": "no"}), false),
        ] {
            assert_eq!(is_expected(&expected, found.to_string().as_bytes(), Tolerance::default()), is_good, "{found}");
            let outputs = &expected["outputs"];
            assert_eq!(is_expected(outputs, found.to_string().as_bytes(), Tolerance::default()), is_good, "{found}");
        }
        assert!(!is_expected(&expected, b"not JSON", Tolerance::default()));
    }
}
