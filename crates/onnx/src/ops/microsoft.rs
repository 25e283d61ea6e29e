//! Operators that are in onnxruntime's domain alone: inverse matrices, crops of images, weights packed into few bits.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_dispatch::DispatchDevice;
use rayon::prelude::*;

use super::along::{elements_of, value_of};
use super::{Args, Build, Kernel, Operator};
use crate::value::{Backend as B, OpError, Value, elements, integers};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("com.microsoft::CropAndResize", |build| {
        let attributes = &build.attributes;
        let outside = attributes.float("extrapolation_value", 0.0)?;
        let nearest = match attributes.text("mode", "bilinear")?.as_str() {
            "bilinear" => false,
            "nearest" => true,
            other => return Err(OpError(format!("mode={}; it is bilinear or nearest", Quoted(other)))),
        };
        Ok(Kernel::one(move |mut args| crops(&mut args, outside, nearest)))
    }),
    Operator::new("com.microsoft::Inverse", |_| Ok(Kernel::one(|mut args| inverse(args.take(0)?, args.device)))),
    Operator::new("uncork::TransposeMatrix", |build| {
        let (turned, batch) = (build.attributes.flag("turned", false)?, build.attributes.flag("batch", false)?);
        Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let rank = x.shape().num_dims();
            if rank < 2 {
                return Err(OpError::new("a factor that is no matrix cannot be transposed"));
            }
            let mut axes: Vec<usize> = (0..rank).collect();
            if batch {
                // The first axis goes behind those of the stack.
                axes[..rank - 1].rotate_left(1);
            }
            if turned {
                axes.swap(rank - 2, rank - 1);
            }
            Ok(Value::Float(B::float_permute(x, &axes)))
        }))
    }),
    Operator::new("uncork::Unpack", unpack),
];

/// The elements of a value as bytes.
fn bytes_of(x: Value) -> Result<Vec<u8>, OpError> {
    let data = x.into_data()?;
    if data.dtype() == DType::U8 {
        return data.try_into_vec().map_err(|e| OpError(e.to_string()));
    }
    let byte = |x| u8::try_from(x).map_err(|_| OpError(format!("{x} is no byte")));
    integers(data)?.into_iter().map(byte).collect()
}

/// Numbers that are packed into few bits, with a scale for each block: [rows, blocks of bytes] to [rows, numbers].
fn unpack(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let number = |name: &str| {
        let number = attributes.int(name, 0)?;
        usize::try_from(number).ok().filter(|&n| n > 0).ok_or_else(|| OpError(format!("{name}={number}")))
    };
    let (bits, block) = (number("bits")?, number("block_size")?);
    let width = if attributes.has("K") { Some(number("K")?) } else { None };
    if ![2, 4, 8].contains(&bits) || !block.is_power_of_two() || !(16..=1 << 16).contains(&block) {
        return Err(OpError(format!("blocks of {block} numbers of {bits} bits")));
    }
    Ok(Kernel::one(move |mut args| {
        let (packed, scales) = (args.take(0)?, args.take(1)?);
        let (zeros, groups) = (args.optional(2), args.optional(3));
        let (kind, dims) = (scales.dtype(), packed.shape());
        if packed.dtype() != DType::U8 || dims.len() < 2 {
            return Err(OpError(format!("packed numbers of type {:?} and shape {dims:?}", packed.dtype())));
        }
        let (rows, bytes) = (dims[0], dims[1..].iter().product::<usize>());
        let width = width.unwrap_or(bytes * 8 / bits);
        let blocks = width.div_ceil(block);
        let packed = bytes_of(packed)?;
        let scales = elements_of::<f32>(scales)?;
        let count = elements(&[rows, width])?;
        if width * bits > bytes * 8 || scales.len() != rows * blocks || count == 0 {
            return Err(OpError(format!(
                "{} scales and numbers of shape {dims:?} do not make {rows} rows of {width}",
                scales.len()
            )));
        }
        let zeros = zeros.map(|zeros| zero_points(zeros, bits, rows, blocks)).transpose()?;
        let middle = (1u32 << (bits - 1)) as f32;
        let groups = groups.map(|groups| groups_of(groups, width, blocks)).transpose()?;
        let mut numbers = vec![0f32; count];
        numbers.par_chunks_mut(width).enumerate().for_each(|(row, numbers)| {
            let packed = &packed[row * bytes..(row + 1) * bytes];
            for (at, number) in numbers.iter_mut().enumerate() {
                let place = row * blocks + groups.as_ref().map_or(at / block, |groups| groups[at]);
                let zero = zeros.as_ref().map_or(middle, |zeros| zeros[place]);
                *number = (f32::from(bits_at(packed, at, bits)) - zero) * scales[place];
            }
        });
        value_of(numbers, vec![rows, width], kind, args.device)
    }))
}

/// Number `at` of a row of packed ones; the first of a byte has its lowest bits.
fn bits_at(packed: &[u8], at: usize, bits: usize) -> u8 {
    let byte = packed[at * bits / 8] >> (at * bits % 8);
    if bits == 8 { byte } else { byte & ((1 << bits) - 1) }
}

/// The zero point of each block: packed like the numbers, or in the type of the scales.
fn zero_points(zeros: Value, bits: usize, rows: usize, blocks: usize) -> Result<Vec<f32>, OpError> {
    let dims = zeros.shape();
    let wrong = || OpError(format!("zero points of shape {dims:?} for {rows} rows of {blocks} blocks"));
    if zeros.dtype() != DType::U8 {
        let zeros = elements_of::<f32>(zeros)?;
        return if zeros.len() == rows * blocks { Ok(zeros) } else { Err(wrong()) };
    }
    let (zeros, bytes) = (bytes_of(zeros)?, (blocks * bits).div_ceil(8));
    if zeros.len() != rows * bytes {
        return Err(wrong());
    }
    let row = |row: usize| (0..blocks).map(move |block| (row, block));
    Ok((0..rows).flat_map(row).map(|(row, block)| f32::from(bits_at(&zeros[row * bytes..], block, bits))).collect())
}

/// The block that each number of a row belongs to, where they are not in order.
fn groups_of(groups: Value, width: usize, blocks: usize) -> Result<Vec<usize>, OpError> {
    let groups: Option<Vec<usize>> =
        integers(groups.into_data()?)?.into_iter().map(|g| usize::try_from(g).ok().filter(|&g| g < blocks)).collect();
    groups.filter(|groups| groups.len() >= width).ok_or_else(|| OpError::new("groups that there are not"))
}

/// The inverse of each matrix of a stack, by elimination in float64.
fn inverse(x: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let (dims, kind) = (x.shape(), x.dtype());
    let n = match dims[..] {
        [.., a, b] if a == b => a,
        _ => return Err(OpError(format!("matrices of shape {dims:?} are not square"))),
    };
    let mut numbers = elements_of::<f64>(Value::Float(x.float()?))?;
    for matrix in numbers.chunks_mut((n * n).max(1)) {
        let found = inverted(matrix, n).ok_or_else(|| OpError::new("a matrix has no inverse"))?;
        matrix.copy_from_slice(&found);
    }
    value_of(numbers, dims, kind, device)
}

/// Gauss's elimination with the largest pivot; `None` where there is none.
fn inverted(matrix: &mut [f64], n: usize) -> Option<Vec<f64>> {
    let mut result = vec![0.0; n * n];
    (0..n).for_each(|i| result[i * n + i] = 1.0);
    for column in 0..n {
        let size = |&row: &usize| matrix[row * n + column].abs();
        let pivot = (column..n).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        let divisor = matrix[pivot * n + column];
        if divisor == 0.0 || !divisor.is_finite() {
            return None;
        }
        for i in 0..n {
            matrix.swap(column * n + i, pivot * n + i);
            result.swap(column * n + i, pivot * n + i);
            matrix[column * n + i] /= divisor;
            result[column * n + i] /= divisor;
        }
        for row in (0..n).filter(|&row| row != column) {
            let factor = matrix[row * n + column];
            for i in 0..n {
                matrix[row * n + i] -= factor * matrix[column * n + i];
                result[row * n + i] -= factor * result[column * n + i];
            }
        }
    }
    Some(result)
}

/// Parts of images, each resized to one size with its corners on the corners of the part.
fn crops(args: &mut Args<'_>, outside: f32, nearest: bool) -> Result<Value, OpError> {
    let (x, boxes, images, size) = (args.take(0)?, args.take(1)?, args.take(2)?, args.ints(3)?.ints);
    let (kind, dims, places) = (x.dtype(), x.shape(), boxes.shape());
    let (&[n, channels, height, width], &[count, 4]) = (&dims[..], &places[..]) else {
        return Err(OpError(format!("images of shape {dims:?} and parts of shape {places:?}")));
    };
    let size: Option<Vec<usize>> = size.iter().map(|&d| usize::try_from(d).ok().filter(|&d| d > 0)).collect();
    let Some(&[out_height, out_width]) = size.as_deref() else {
        return Err(OpError::new("a size of the parts that is not two numbers above zero"));
    };
    let (x, boxes) = (elements_of::<f32>(Value::Float(x.float()?))?, elements_of::<f32>(boxes)?);
    let images = integers(images.into_data()?)?;
    if images.len() != count || images.iter().any(|&image| !usize::try_from(image).is_ok_and(|image| image < n)) {
        return Err(OpError(format!("parts of the images {images:?}, of which there are {n}")));
    }
    let shape = vec![count, channels, out_height, out_width];
    let mut numbers = vec![outside; elements(&shape)?];
    if x.is_empty() || numbers.is_empty() {
        return value_of(numbers, shape, kind, args.device);
    }
    let plane = out_height * out_width;
    numbers.par_chunks_mut(plane).enumerate().for_each(|(at, numbers)| {
        let (part, channel) = (at / channels, at % channels);
        let image = images[part] as usize;
        let image = &x[(image * channels + channel) * height * width..][..height * width];
        let corners = &boxes[part * 4..][..4];
        for (row, numbers) in numbers.chunks_mut(out_width).enumerate() {
            let Some(y) = place(corners[0], corners[2], height, row, out_height) else { continue };
            for (column, number) in numbers.iter_mut().enumerate() {
                let Some(x) = place(corners[1], corners[3], width, column, out_width) else { continue };
                let pixel = |y: f32, x: f32| image[y as usize * width + x as usize];
                *number = if nearest {
                    pixel(y.round(), x.round())
                } else {
                    let (top, left) = (y.floor(), x.floor());
                    let row = |y: f32| pixel(y, left) + (pixel(y, x.ceil()) - pixel(y, left)) * (x - left);
                    row(top) + (row(y.ceil()) - row(top)) * (y - top)
                };
            }
        }
    });
    value_of(numbers, shape, kind, args.device)
}

/// Where in an image of this length place `at` of `count` lies, between the relative ends of a part; `None` outside.
fn place(from: f32, to: f32, length: usize, at: usize, count: usize) -> Option<f32> {
    let last = (length - 1) as f32;
    let place = match count {
        1 => 0.5 * (from + to) * last,
        _ => from * last + at as f32 * ((to - from) * last / (count - 1) as f32),
    };
    (0.0..=last).contains(&place).then_some(place)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::alone;
    use crate::author::Attribute::Int;

    #[test]
    fn an_inverse_is_found_where_the_first_pivot_is_zero_and_refused_where_there_is_none() {
        let inverse = |matrix: [[f32; 2]; 2]| alone(17, "com.microsoft::Inverse", &[], [("x", matrix.into())]);
        assert_eq!(inverse([[0.0, 2.0], [4.0, 0.0]]), Ok(TensorData::from([[0f32, 0.25], [0.5, 0.0]])));
        assert!(inverse([[1.0, 2.0], [2.0, 4.0]]).unwrap_err().contains("a matrix has no inverse"));
    }

    #[test]
    fn weights_of_four_bits_are_unpacked_low_bits_first() {
        // Two outputs of 16 inputs: 0, 1, 2, … and all 8, the middle, which stands for 0.
        let counted: Vec<u8> = (0..8u8).map(|i| (2 * i) | ((2 * i + 1) << 4)).collect();
        let packed = TensorData::new([counted, vec![0x88; 8]].concat(), [2, 1, 8]);
        let attributes = [("bits", Int(4)), ("block_size", Int(16)), ("K", Int(16)), ("N", Int(2))];
        let product = |zeros: Option<u8>| {
            let x = TensorData::new(vec![1f32; 16], [1, 16]);
            let scales = TensorData::from([[0.5f32], [3.0]]);
            let zeros = zeros.map_or(("", TensorData::from([0u8])), |zero| ("z", TensorData::from([[zero], [zero]])));
            alone(
                17,
                "com.microsoft::MatMulNBits",
                &attributes,
                [("x", x), ("w", packed.clone()), ("s", scales), zeros],
            )
        };
        assert_eq!(product(None), Ok(TensorData::from([[0.5f32 * (120.0 - 128.0), 0.0]])));
        assert_eq!(product(Some(0)), Ok(TensorData::from([[60f32, 3.0 * 128.0]])));
    }
}
