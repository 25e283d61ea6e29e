//! Inputs as a file declares them, as those of a signature.

use crate::Cause;
use crate::outline::{Declared, Dim};
use crate::tensors;
use crate::value::elements;
use uncork_model::quote::Quoted;
use uncork_model::runner::{Rows, TensorSpec};
use uncork_model::tensor::DataType;

/// Most elements that one input row may have: 256 MiB of float32.
const MAX_ROW: usize = 1 << 26;

pub(super) fn datatype(declared: &Declared) -> Result<DataType, Cause> {
    tensors::datatype(declared.element).ok_or_else(|| {
        let (name, element) = (Quoted(&declared.name), declared.element);
        Cause::Graph(format!("input {name} has an element type ({element}) that cannot be served"))
    })
}

/// Declared inputs, each with its rows along some axis.
pub(super) fn specs(inputs: &[Declared], types: &[DataType], rows: &[Rows]) -> Result<Vec<TensorSpec>, Cause> {
    let dim = |(input, rows): (&Declared, &Rows)| match rows {
        Rows::Axis(axis) => input.dims.as_ref().and_then(|dims| dims.get(*axis).cloned()),
        Rows::Shared => None,
    };
    let fronts: Vec<Option<Dim>> = inputs.iter().zip(rows).map(dim).collect();
    let is_open = fronts.iter().any(|dim| matches!(dim, Some(Dim::Free(_))));
    let each = inputs.iter().zip(types).zip(rows).zip(fronts).map(|(((input, datatype), rows), front)| {
        // Whoever calls it as the file says gives one row of this, and as many as they like of others.
        let repeats = is_open && front == Some(Dim::Fixed(1));
        Ok(TensorSpec { repeats, ..spec(input, *datatype, *rows)? })
    });
    each.collect()
}

/// A declared input, with its rows along some axis.
fn spec(declared: &Declared, datatype: DataType, rows: Rows) -> Result<TensorSpec, Cause> {
    let name = declared.name.clone();
    let Some(dims) = declared.dims.as_deref() else {
        return Err(Cause::FixedBatch { name, found: "declares no shape".into() });
    };
    let behind = dims.iter().enumerate().filter(|(axis, _)| rows != Rows::Axis(*axis)).map(|(_, dim)| match dim {
        Dim::Free(_) => Ok(None),
        Dim::Fixed(n) => usize::try_from(*n)
            .map(Some)
            .map_err(|_| Cause::Graph(format!("input {} has a dimension of {n}", Quoted(&name)))),
    });
    let dims: Vec<Option<usize>> = behind.collect::<Result<_, _>>()?;
    let fixed: Vec<usize> = dims.iter().flatten().copied().collect();
    if elements(&fixed).map_or(true, |n| n > MAX_ROW) {
        return Err(Cause::Graph(format!("a row of input {} has more than {MAX_ROW} elements", Quoted(&name))));
    }
    let range = declared.range.clone();
    Ok(TensorSpec { rows, range, ..TensorSpec::new(name, datatype, dims) })
}
