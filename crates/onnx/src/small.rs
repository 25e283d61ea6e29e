//! Weights in types of eight bits or fewer that Rust has none for. They become wider numbers that mean the same, which is
//! right wherever they are only read as numbers; whoever could see their type is refused.

use std::collections::HashMap;

use burn_backend::{Shape, TensorData};
use half::f16;

use super::Cause;
use super::proto::{GraphProto, NodeProto, ValueInfo};
use uncork_model::quote::{Quoted, QuotedPlace};

/// One of these types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Small {
    /// Integers of so many bits, packed with the first in the lowest.
    Int { bits: usize, signed: bool },
    /// Floats: bits of the exponent and of the fraction, what is taken from the exponent, and which bits are not a number.
    Float { exponent: u32, fraction: u32, bias: i32, none: Option<u8> },
    /// float8e5m2, which is the upper half of a float16.
    Half,
    /// float8e8m0, a power of two.
    Power,
}

impl Small {
    /// The type that `onnx.TensorProto.DataType` numbers so, if it is one of these.
    pub(super) fn of(element: i32) -> Option<Small> {
        let float = |exponent, fraction, bias, none| Small::Float { exponent, fraction, bias, none };
        Some(match element {
            17 => float(4, 3, 7, Some(0x7f)),
            18 => float(4, 3, 8, Some(0x80)),
            19 => Small::Half,
            20 => float(5, 2, 16, Some(0x80)),
            21 => Small::Int { bits: 4, signed: false },
            22 => Small::Int { bits: 4, signed: true },
            23 => float(2, 1, 1, None),
            24 => Small::Power,
            25 => Small::Int { bits: 2, signed: false },
            26 => Small::Int { bits: 2, signed: true },
            _ => return None,
        })
    }

    /// Bits of one element.
    fn bits(self) -> usize {
        match self {
            Small::Int { bits, .. } => bits,
            Small::Float { exponent: 2, .. } => 4,
            Small::Float { .. } | Small::Half | Small::Power => 8,
        }
    }

    /// Bytes that so many elements take.
    pub(super) fn bytes(self, count: usize) -> usize {
        count.div_ceil(8 / self.bits())
    }

    /// The numbers that these bytes hold, of which there are enough.
    pub(super) fn data(self, bytes: &[u8], count: usize, shape: Shape) -> TensorData {
        let bits = self.bits();
        let element = |i: usize| {
            let byte = bytes[i * bits / 8] >> (i * bits % 8);
            if bits == 8 { byte } else { byte & ((1 << bits) - 1) }
        };
        let elements = (0..count).map(element);
        match self {
            Small::Int { signed: false, .. } => TensorData::new(elements.collect::<Vec<u8>>(), shape),
            // The sign moves to where the byte has it, and back with all bits before it.
            Small::Int { bits, signed: true } => {
                let shift = 8 - bits;
                TensorData::new(elements.map(|x| (x << shift) as i8 >> shift).collect::<Vec<i8>>(), shape)
            }
            _ => TensorData::new(elements.map(|x| self.float(x)).collect::<Vec<f32>>(), shape),
        }
    }

    fn float(self, byte: u8) -> f32 {
        match self {
            Small::Half => f16::from_bits(u16::from(byte) << 8).to_f32(),
            Small::Power if byte == 0xff => f32::NAN,
            Small::Power => (f32::from(byte) - 127.0).exp2(),
            Small::Float { none: Some(none), .. } if byte == none || (none == 0x7f && byte == 0xff) => f32::NAN,
            Small::Float { exponent, fraction, bias, .. } => {
                let sign = if byte >> (exponent + fraction) == 1 { -1.0 } else { 1.0 };
                let power = i32::from(byte >> fraction) & ((1 << exponent) - 1);
                let part = f32::from(byte & ((1 << fraction) - 1)) / (1u32 << fraction) as f32;
                let (whole, power) = if power == 0 { (0.0, 1) } else { (1.0, power) };
                sign * (whole + part) * ((power - bias) as f32).exp2()
            }
            Small::Int { .. } => f32::from(byte),
        }
    }
}

/// Operators that read such numbers and nothing of their type.
const READERS: [&str; 3] = ["Cast", "DequantizeLinear", "GatherBlockQuantized"];

/// Refuses a graph in which anybody else reads such a weight or input.
pub(super) fn refuse_readers(graph: &GraphProto) -> Result<(), Cause> {
    let mut small: HashMap<&str, ()> = HashMap::new();
    collect(graph, &mut small);
    if small.is_empty() { Ok(()) } else { check(graph, &small) }
}

fn collect<'a>(graph: &'a GraphProto, small: &mut HashMap<&'a str, ()>) {
    let weights = graph.initializer.iter().filter(|weight| Small::of(weight.data_type).is_some());
    small.extend(weights.map(|weight| (weight.name.as_str(), ())));
    let element = |input: &ValueInfo| input.kind.as_ref().and_then(|kind| kind.tensor.as_ref()).map(|t| t.elem_type);
    let inputs = graph.input.iter().filter(|input| element(input).and_then(Small::of).is_some());
    small.extend(inputs.map(|input| (input.name.as_str(), ())));
    for node in &graph.node {
        let constant = node.attribute.iter().filter_map(|attribute| attribute.t.as_ref());
        if constant.into_iter().any(|tensor| Small::of(tensor.data_type).is_some()) {
            small.extend(node.output.iter().map(|name| (name.as_str(), ())));
        }
        node.bodies().for_each(|body| collect(body, small));
    }
}

fn check(graph: &GraphProto, small: &HashMap<&str, ()>) -> Result<(), Cause> {
    let reads = |node: &&NodeProto| node.input.iter().any(|name| small.contains_key(name.as_str()));
    for node in graph.node.iter().filter(reads) {
        // Of a cast the type of the second argument would be seen.
        if !READERS.contains(&node.op_type.as_str()) {
            return Err(Cause::Unsupported(format!(
                "operator {} (node {}) reads a tensor of a type of eight bits or fewer, which only {} may",
                Quoted(&node.qualified()),
                QuotedPlace(node.label()),
                READERS.join(", ")
            )));
        }
    }
    match graph.output.iter().find(|output| small.contains_key(output.name.as_str())) {
        Some(output) => {
            Err(Cause::Unsupported(format!("output {} is of a type that cannot be served", Quoted(&output.name))))
        }
        None => graph.node.iter().flat_map(NodeProto::bodies).try_for_each(|body| check(body, small)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::author::Author;
    use super::*;

    fn read(element: i32, bytes: &[u8], count: usize) -> TensorData {
        Small::of(element).unwrap().data(bytes, count, Shape::from([count]))
    }

    #[test]
    fn an_input_whose_type_somebody_would_see_is_refused() {
        let author = Author::new(21).input("x", &[2]).input_of(22, "like", &[1]).output("y", &[2]);
        let error = author.node("CastLike", &["x", "like"], &["y"], &[]).answer(Vec::new()).unwrap_err();
        assert!(
            error.contains("operator 'CastLike' (node 'make_y') reads a tensor of a type of eight bits"),
            "{error}"
        );
    }

    #[test]
    fn the_first_element_of_a_byte_has_its_lowest_bits() {
        assert_eq!(read(21, &[0x21, 0x0f], 3), TensorData::from([1u8, 2, 15]));
        assert_eq!(read(22, &[0x8f, 0x07], 3), TensorData::from([-1i8, -8, 7]));
        assert_eq!(read(26, &[0b11_10_01_00], 4), TensorData::from([0i8, 1, -2, -1]));
        assert_eq!(Small::of(22).unwrap().bytes(3), 2);
    }

    #[test]
    fn floats_of_few_bits_are_what_their_types_say() {
        // As ml_dtypes has them.
        assert_eq!(
            read(17, &[0x00, 0x01, 0x38, 0x7e, 0xfe, 0x08], 6),
            TensorData::from([0.0f32, 0.001_953_125, 1.0, 448.0, -448.0, 0.015_625])
        );
        assert_eq!(read(18, &[0x40, 0x7f, 0x01], 3), TensorData::from([1.0f32, 240.0, 0.000_976_562_5]));
        assert_eq!(read(19, &[0x3c, 0x7b, 0x01], 3), TensorData::from([1.0f32, 57344.0, 1.525_878_9e-5]));
        assert_eq!(read(20, &[0x40, 0x7f], 2), TensorData::from([1.0f32, 57344.0]));
        assert_eq!(read(23, &[0x72, 0xf1], 4), TensorData::from([1.0f32, 6.0, 0.5, -6.0]));
        assert_eq!(read(24, &[127, 128], 2), TensorData::from([1.0f32, 2.0]));
        for (element, none) in [(17, 0x7f), (17, 0xff), (18, 0x80), (19, 0x7f), (20, 0x80), (24, 0xff)] {
            assert!(read(element, &[none], 1).iter::<f32>().all(f32::is_nan), "{element} {none}");
        }
    }
}
