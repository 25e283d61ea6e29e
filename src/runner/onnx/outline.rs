//! What an ONNX file says about itself: names, shapes and operators, read before onnx-ir sees the file.
//!
//! onnx-ir turns every name into a Rust identifier (`Pixels:0` becomes `pixels_0`, node names are lost) and rejects
//! graphs for reasons of their operators with texts that do not name them. Callers use the file's own names, and a
//! missing operator is to be called by its name, so both are read here, from protobuf's wire format directly. Only what
//! is needed is read; everything else is skipped over without being allocated.

use super::OnnxError;

/// One declared input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    /// `onnx.TensorProto.DataType`; 0 where the file does not say.
    pub(super) element: u64,
    /// `None` where no shape is declared.
    pub(super) dims: Option<Vec<Dim>>,
}

/// One dimension of a declared shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dim {
    Fixed(u64),
    /// Free, under a name; the name is empty where there is none.
    Free(String),
}

/// One node of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeLine {
    pub(super) operator: String,
    pub(super) domain: String,
    pub(super) name: String,
    pub(super) first_output: String,
}

/// The parts of a model that are read here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Outline {
    /// Version of the standard operator set.
    pub(super) opset: u64,
    /// Graph inputs that callers give: those that no initializer fills.
    pub(super) inputs: Vec<Declared>,
    pub(super) outputs: Vec<Declared>,
    pub(super) nodes: Vec<NodeLine>,
    /// An initializer whose data is in another file.
    pub(super) external: Option<String>,
}

impl NodeLine {
    /// The operator with its domain, the latter only where it is not the standard one.
    pub(super) fn qualified(&self) -> String {
        match self.domain.as_str() {
            "" | "ai.onnx" => self.operator.clone(),
            domain => format!("{domain}::{}", self.operator),
        }
    }

    /// The node's name, or that of its first output where it has none.
    pub(super) fn label(&self) -> &str {
        if self.name.is_empty() { &self.first_output } else { &self.name }
    }
}

impl Outline {
    /// Reads the outline of a model.
    pub(super) fn read(bytes: &[u8]) -> Result<Outline, OnnxError> {
        let mut outline = Outline::default();
        let mut has_graph = false;
        let mut initialized = Vec::new();
        // ModelProto
        each(bytes, |field, value| {
            match (field, value) {
                (7, Wire::Bytes(graph)) => {
                    has_graph = true;
                    outline.graph(graph, &mut initialized)?;
                }
                (8, Wire::Bytes(import)) => {
                    let (mut domain, mut version) = (String::new(), 0);
                    each(import, |field, value| {
                        match (field, value) {
                            (1, Wire::Bytes(b)) => domain = text(b),
                            (2, Wire::Number(n)) => version = n,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    if domain.is_empty() || domain == "ai.onnx" {
                        outline.opset = version;
                    }
                }
                _ => {}
            }
            Ok(())
        })
        .map_err(|Cut| OnnxError::Unreadable("its protobuf encoding is cut short or damaged".into()))?;
        if !has_graph {
            return Err(OnnxError::Unreadable("there is no graph in it".into()));
        }
        outline.inputs.retain(|input| !initialized.contains(&input.name));
        Ok(outline)
    }

    fn graph(&mut self, bytes: &[u8], initialized: &mut Vec<String>) -> Result<(), Cut> {
        each(bytes, |field, value| {
            let Wire::Bytes(b) = value else { return Ok(()) };
            match field {
                1 => self.nodes.push(node(b)?),
                5 => {
                    let (mut name, mut external) = (String::new(), false);
                    each(b, |field, value| {
                        match (field, value) {
                            (8, Wire::Bytes(b)) => name = text(b),
                            (14, Wire::Number(1)) => external = true,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    if external {
                        self.external.get_or_insert_with(|| name.clone());
                    }
                    initialized.push(name);
                }
                11 => self.inputs.push(declared(b)?),
                12 => self.outputs.push(declared(b)?),
                _ => {}
            }
            Ok(())
        })
    }
}

fn node(bytes: &[u8]) -> Result<NodeLine, Cut> {
    let mut line =
        NodeLine { operator: String::new(), domain: String::new(), name: String::new(), first_output: String::new() };
    each(bytes, |field, value| {
        if let Wire::Bytes(b) = value {
            match field {
                2 if line.first_output.is_empty() => line.first_output = text(b),
                3 => line.name = text(b),
                4 => line.operator = text(b),
                7 => line.domain = text(b),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(line)
}

/// ValueInfoProto, as far as it declares a tensor.
fn declared(bytes: &[u8]) -> Result<Declared, Cut> {
    let mut out = Declared { name: String::new(), element: 0, dims: None };
    each(bytes, |field, value| {
        match (field, value) {
            (1, Wire::Bytes(b)) => out.name = text(b),
            (2, Wire::Bytes(ty)) => each(ty, |field, value| {
                let (1, Wire::Bytes(tensor)) = (field, value) else { return Ok(()) };
                each(tensor, |field, value| {
                    match (field, value) {
                        (1, Wire::Number(n)) => out.element = n,
                        (2, Wire::Bytes(shape)) => {
                            let dims = out.dims.get_or_insert_with(Vec::new);
                            each(shape, |field, value| {
                                if let (1, Wire::Bytes(b)) = (field, value) {
                                    dims.push(dim(b)?);
                                }
                                Ok(())
                            })?;
                        }
                        _ => {}
                    }
                    Ok(())
                })
            })?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(out)
}

fn dim(bytes: &[u8]) -> Result<Dim, Cut> {
    let mut dim = Dim::Free(String::new());
    each(bytes, |field, value| {
        match (field, value) {
            (1, Wire::Number(n)) => dim = Dim::Fixed(n),
            (2, Wire::Bytes(b)) => dim = Dim::Free(text(b)),
            _ => {}
        }
        Ok(())
    })?;
    // Some exporters write 0 or -1 for a length that they do not know.
    Ok(if matches!(dim, Dim::Fixed(n) if n == 0 || n as i64 == -1) { Dim::Free(String::new()) } else { dim })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes end within a field, or are none.
#[derive(Debug)]
struct Cut;

/// One field's value on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Calls `visit` with number and value of each field of one message.
fn each<'a>(mut bytes: &'a [u8], mut visit: impl FnMut(u64, Wire<'a>) -> Result<(), Cut>) -> Result<(), Cut> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => take(&mut bytes, 8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Cut)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => take(&mut bytes, 4).map(|_| Wire::Fixed)?,
            _ => return Err(Cut),
        };
        visit(key >> 3, value)?;
    }
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Cut> {
    let (head, rest) = bytes.split_at_checked(length).ok_or(Cut)?;
    *bytes = rest;
    Ok(head)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Cut> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Cut)
}
