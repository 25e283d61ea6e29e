//! Writes small ONNX files for tests, in protobuf's wire format.

/// An ONNX model under construction.
pub(super) struct Author {
    opset: u64,
    graph: Vec<u8>,
}

/// The value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum Attribute<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
}

/// A dimension that is free, under the name `batch`.
pub(super) const FREE: i64 = -1;

impl Author {
    pub(super) fn new(opset: u64) -> Author {
        Author { opset, graph: Vec::new() }
    }

    pub(super) fn input(mut self, name: &str, dims: &[i64]) -> Author {
        bytes(&mut self.graph, 11, &value_info(name, 1, dims));
        self
    }

    /// An input of 64-bit integers.
    pub(super) fn int_input(mut self, name: &str, dims: &[i64]) -> Author {
        bytes(&mut self.graph, 11, &value_info(name, 7, dims));
        self
    }

    pub(super) fn output(mut self, name: &str, dims: &[i64]) -> Author {
        bytes(&mut self.graph, 12, &value_info(name, 1, dims));
        self
    }

    pub(super) fn floats(mut self, name: &str, dims: &[i64], data: &[f32]) -> Author {
        let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        bytes(&mut self.graph, 5, &tensor(name, 1, dims, &raw));
        self
    }

    pub(super) fn ints(mut self, name: &str, dims: &[i64], data: &[i64]) -> Author {
        let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        bytes(&mut self.graph, 5, &tensor(name, 7, dims, &raw));
        self
    }

    /// A weight that is said to be in another file.
    pub(super) fn external(mut self, name: &str) -> Author {
        let mut weight = tensor(name, 1, &[1], &[]);
        number(&mut weight, 14, 1);
        bytes(&mut self.graph, 5, &weight);
        self
    }

    /// A node called after its first output.
    pub(super) fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> Author {
        let mut node = Vec::new();
        inputs.iter().for_each(|i| bytes(&mut node, 1, i.as_bytes()));
        outputs.iter().for_each(|o| bytes(&mut node, 2, o.as_bytes()));
        bytes(&mut node, 3, format!("make_{}", outputs[0]).as_bytes());
        bytes(&mut node, 4, operator.as_bytes());
        for (name, value) in attributes {
            let mut attribute = Vec::new();
            bytes(&mut attribute, 1, name.as_bytes());
            let kind = match value {
                Attribute::Float(x) => {
                    varint(&mut attribute, 2 << 3 | 5);
                    attribute.extend(x.to_le_bytes());
                    1
                }
                Attribute::Int(i) => {
                    number(&mut attribute, 3, *i as u64);
                    2
                }
                Attribute::Ints(ints) => {
                    ints.iter().for_each(|&i| number(&mut attribute, 8, i as u64));
                    7
                }
                Attribute::Text(text) => {
                    bytes(&mut attribute, 4, text.as_bytes());
                    3
                }
            };
            number(&mut attribute, 20, kind);
            bytes(&mut node, 5, &attribute);
        }
        bytes(&mut self.graph, 1, &node);
        self
    }

    /// The file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        bytes(&mut self.graph, 2, b"graph");
        let mut opset = Vec::new();
        number(&mut opset, 2, self.opset);
        let mut model = Vec::new();
        number(&mut model, 1, 8);
        bytes(&mut model, 8, &opset);
        bytes(&mut model, 7, &self.graph);
        model
    }
}

fn value_info(name: &str, element: u64, dims: &[i64]) -> Vec<u8> {
    let mut shape = Vec::new();
    for &d in dims {
        let mut dim = Vec::new();
        match d {
            FREE => bytes(&mut dim, 2, b"batch"),
            d => number(&mut dim, 1, d as u64),
        }
        bytes(&mut shape, 1, &dim);
    }
    let (mut tensor, mut kind, mut info) = (Vec::new(), Vec::new(), Vec::new());
    number(&mut tensor, 1, element);
    bytes(&mut tensor, 2, &shape);
    bytes(&mut kind, 1, &tensor);
    bytes(&mut info, 1, name.as_bytes());
    bytes(&mut info, 2, &kind);
    info
}

fn tensor(name: &str, element: u64, dims: &[i64], raw: &[u8]) -> Vec<u8> {
    let mut tensor = Vec::new();
    dims.iter().for_each(|&d| number(&mut tensor, 1, d as u64));
    number(&mut tensor, 2, element);
    bytes(&mut tensor, 8, name.as_bytes());
    bytes(&mut tensor, 9, raw);
    tensor
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
