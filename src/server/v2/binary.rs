//! Bodies without JSON.
//!
//! Source: the extension of the Open Inference Protocol v2 for binary tensor data
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>).

use crate::runner::{Rows, Signature};
use crate::tensor::{DataType, elements};

/// Name, type and shape of the tensor that a body without JSON must be: one row of the model's only input. Of its
/// dimensions one may be free: the body's length says what it is. Fails with words for the client.
pub(super) fn only_input<'a>(body: &[u8], signature: &'a Signature) -> Result<(&'a str, DataType, Vec<usize>), String> {
    let [spec] = &signature.inputs[..] else {
        let names: Vec<_> = signature.inputs.iter().map(|spec| format!("'{}'", spec.name)).collect();
        return Err(format!("a body without JSON is for a model with one input; this one takes {}", names.join(", ")));
    };
    let mut shape: Vec<Option<usize>> = spec.dims.clone();
    if let Rows::Axis(axis) = spec.rows {
        shape.insert(axis.min(shape.len()), Some(1));
    }
    let free = shape.iter().filter(|dim| dim.is_none()).count();
    let known = elements(&shape.iter().flatten().copied().collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    // A byte string is the body itself, so there is one.
    let given = if spec.datatype == DataType::Bytes { 1 } else { body.len() / spec.datatype.byte_len() };
    let length = if free == 1 && known > 0 { given / known } else { 1 };
    if free > 1 {
        let wire = spec.wire_shape();
        return Err(format!(
            "input '{}' has shape {wire:?}: a body without JSON cannot say which lengths it has",
            spec.name
        ));
    }
    Ok((&spec.name, spec.datatype, shape.into_iter().map(|dim| dim.unwrap_or(length)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::TensorSpec;

    #[test]
    fn a_body_without_json_is_one_row_of_the_only_input() {
        let of = |dims: Vec<Option<usize>>, datatype, bytes: usize| {
            let signature = Signature { inputs: vec![TensorSpec::new("x", datatype, dims)], outputs: Vec::new() };
            only_input(&vec![0; bytes], &signature).map(|(_, _, shape)| shape)
        };
        assert_eq!(of(vec![Some(3)], DataType::Fp32, 12), Ok(vec![1, 3]));
        assert_eq!(of(vec![Some(3), None], DataType::Fp32, 24), Ok(vec![1, 3, 2]));
        assert_eq!(of(vec![None], DataType::Bytes, 24), Ok(vec![1, 1]));
        assert!(of(vec![None, None], DataType::Fp32, 24).unwrap_err().contains("[-1, -1, -1]"));
        let two = ["a", "b"].map(|name| TensorSpec::new(name, DataType::Fp32, Vec::new()));
        let two = Signature { inputs: two.to_vec(), outputs: Vec::new() };
        assert!(only_input(&[], &two).unwrap_err().contains("takes 'a', 'b'"));
    }
}
