//! What is said of a model's shapes beside its file.

use std::collections::BTreeMap;

use super::Cause;
use super::outline::{Declared, Dim, Outline};
use uncork_model::quote::{Quoted, listed};
use uncork_model::runner::{BatchAxes, Rows, Shapes};

/// Gives free dimensions the lengths that are said. The error names those that there are.
pub(crate) fn fix(shapes: &Shapes, outline: &mut Outline) -> Result<(), Cause> {
    let names = free_names(outline);
    if let Some(unknown) = shapes.dims.keys().find(|name| !names.contains(name)) {
        let known = free_dimensions(outline);
        return Err(Cause::Shapes(format!("no free dimension is called {}; {known}", Quoted(unknown))));
    }
    if let BatchAxes::Named(axes) = &shapes.batch_axes {
        check_axes(axes, outline)?;
    }
    for declared in outline.inputs.iter_mut().chain(&mut outline.outputs) {
        let own = declared.name.clone();
        for (axis, dim) in declared.dims.iter_mut().flatten().enumerate() {
            let Dim::Free(name) = dim else { continue };
            let said = shapes.dims.get(name.as_str()).or_else(|| shapes.dims.get(&place(&own, axis)));
            if let Some(&length) = said {
                *dim = Dim::Fixed(length as u64);
            }
        }
    }
    Ok(())
}

fn check_axes(axes: &BTreeMap<String, Rows>, outline: &Outline) -> Result<(), Cause> {
    for (name, rows) in axes {
        let Some(input) = outline.inputs.iter().find(|input| input.name == *name) else {
            let names: Vec<String> = outline.inputs.iter().map(|input| input.name.clone()).collect();
            let known = listed(&names);
            return Err(Cause::Shapes(format!("batch_axes: no input is called {}; there are {known}", Quoted(name))));
        };
        let rank = input.dims.as_ref().map_or(0, Vec::len);
        if let Rows::Axis(axis) = rows
            && *axis >= rank
        {
            return Err(Cause::Shapes(format!(
                "batch_axes: input {} has {rank} axes, and no axis {axis}",
                Quoted(name)
            )));
        }
    }
    Ok(())
}

/// What a free dimension without a name is called.
fn place(input: &str, axis: usize) -> String {
    format!("{input}.{axis}")
}

/// All that the inputs' free dimensions can be called.
fn free_names(outline: &Outline) -> Vec<String> {
    let mut names: Vec<String> = outline.inputs.iter().flat_map(names_of).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn names_of(input: &Declared) -> Vec<String> {
    let mut names = Vec::new();
    for (axis, dim) in input.dims.iter().flatten().enumerate() {
        if let Dim::Free(name) = dim {
            names.push(place(&input.name, axis));
            names.extend((!name.is_empty()).then(|| name.clone()));
        }
    }
    names
}

/// The free dimensions of the inputs, for a message: by name where they have one.
pub(super) fn free_dimensions(outline: &Outline) -> String {
    let mut names: Vec<String> = Vec::new();
    for input in &outline.inputs {
        for (axis, dim) in input.dims.iter().flatten().enumerate() {
            match dim {
                Dim::Free(name) if name.is_empty() => names.push(place(&input.name, axis)),
                Dim::Free(name) if !names.contains(name) => names.push(name.clone()),
                _ => {}
            }
        }
    }
    match &names[..] {
        [] => "the model has none".into(),
        names => format!("the model's are {}", listed(names)),
    }
}
