//! Operators that look things up: labels, categories, and the keys of maps.

use std::collections::HashMap;
use std::sync::Arc;

use burn_backend::{DType, TensorData};

use super::scores::{Labels, matrix};
use crate::ops::arrange::picked;
use crate::ops::{Build, Kernel, Operator};
use crate::texts::Texts;
use crate::value::{OpError, Value, elements, integers};
use crate::weights;
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::of_any("ai.onnx.ml::CategoryMapper", |build| {
        let texts = build.attributes.texts("cats_strings")?.unwrap_or_default();
        let ints = build.attributes.ints("cats_int64s")?.unwrap_or_default();
        let (text, int) =
            (build.attributes.text("default_string", "_Unused")?, build.attributes.int("default_int64", -1)?);
        let (texts, ints) = (Column::Texts(shared(texts)), Column::Ints(ints));
        let to_ints = Lookup::new(&texts, &ints, Column::Ints(vec![int]))?;
        let to_texts = Lookup::new(&ints, &texts, Column::Texts(shared(vec![text])))?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let lookup = if matches!(x, Value::Texts(_)) { &to_ints } else { &to_texts };
            lookup.apply(x, args.device)
        }))
    }),
    Operator::new("ai.onnx.ml::DictVectorizer", |build| {
        // A map is a row with a column for each key, in the order of this vocabulary: see `maps`.
        let keys = Labels::of(build, "int64_vocabulary", "string_vocabulary")?.count();
        Ok(Kernel::one(move |mut args| columns(args.take(0)?, keys)))
    }),
    Operator::of_any("ai.onnx.ml::LabelEncoder", label_encoder),
    Operator::of_any("ai.onnx.ml::OneHotEncoder", one_hot),
    Operator::new("ai.onnx.ml::ZipMap", |build| {
        // A map is a row with a column for each key, in the order of these labels: see `maps`.
        let keys = Labels::of(build, "classlabels_int64s", "classlabels_strings")?.count();
        Ok(Kernel::one(move |mut args| columns(args.take(0)?, keys)))
    }),
];

fn columns(x: Value, keys: usize) -> Result<Value, OpError> {
    match x.shape().last() {
        Some(&columns) if columns == keys => Ok(x),
        _ => Err(OpError(format!(
            "expects a column for each of {keys} keys and gets the shape {:?}",
            x.shape().to_vec()
        ))),
    }
}

fn shared(texts: Vec<String>) -> Vec<Arc<str>> {
    texts.into_iter().map(Arc::from).collect()
}

/// Keys or values of a table.
#[derive(Clone)]
enum Column {
    Ints(Vec<i64>),
    Texts(Vec<Arc<str>>),
    /// Numbers of any other type.
    Numbers(TensorData),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Column::Ints(ints) => ints.len(),
            Column::Texts(texts) => texts.len(),
            Column::Numbers(data) => data.num_elements(),
        }
    }

    /// The column that one of several attributes holds.
    fn of(build: &Build<'_>, kind: &str) -> Result<Option<Column>, OpError> {
        let attributes = &build.attributes;
        if let Some(texts) = attributes.texts(&format!("{kind}_strings"))? {
            return Ok(Some(Column::Texts(shared(texts))));
        }
        if let Some(ints) = attributes.ints(&format!("{kind}_int64s"))? {
            return Ok(Some(Column::Ints(ints)));
        }
        if let Some(floats) = attributes.floats(&format!("{kind}_floats"))? {
            let count = floats.len();
            return Ok(Some(Column::Numbers(TensorData::new(floats, [count]))));
        }
        Column::tensor(build, &format!("{kind}_tensor"))
    }

    fn tensor(build: &Build<'_>, name: &str) -> Result<Option<Column>, OpError> {
        let Some(mut tensor) = build.attributes.tensor(name)? else { return Ok(None) };
        Ok(Some(match weights::value(&mut tensor, build.files, build.device)? {
            Value::Texts(texts) => Column::Texts(texts.into_parts().1),
            Value::Host(ints) => Column::Ints(ints.ints),
            other => Column::Numbers(other.into_data()?),
        }))
    }
}

/// What is looked up: one element, by its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Text(Arc<str>),
    Int(i64),
    /// The bits of a float64; those of 0 for -0, and of one NaN for all.
    Float(u64),
}

fn float_key(x: f64) -> Key {
    let x = if x.is_nan() { f64::NAN } else { x };
    Key::Float(if x == 0.0 { 0 } else { x.to_bits() })
}

/// The keys of a tensor's elements.
fn keys(x: Value) -> Result<Vec<Key>, OpError> {
    let x = match x {
        Value::Texts(texts) => return Ok(texts.into_parts().1.into_iter().map(Key::Text).collect()),
        other => other.into_data()?,
    };
    data_keys(x)
}

fn data_keys(data: TensorData) -> Result<Vec<Key>, OpError> {
    let read = |e| OpError(format!("cannot be read: {e:?}"));
    if data.dtype().is_float() {
        let numbers = data.convert_dtype(DType::F64).try_into_vec::<f64>().map_err(read)?;
        return Ok(numbers.into_iter().map(float_key).collect());
    }
    Ok(integers(data)?.into_iter().map(Key::Int).collect())
}

/// A table from keys to values.
struct Lookup {
    places: HashMap<Key, usize>,
    /// Behind the last value stands the one for unknown keys.
    values: Value,
    unknown: usize,
    /// Whether the keys are texts, and what they are called.
    of_texts: bool,
}

impl Lookup {
    fn new(keys: &Column, values: &Column, unknown: Column) -> Result<Lookup, OpError> {
        if keys.len() != values.len() || unknown.len() != 1 {
            return Err(OpError(format!("{} keys for {} values", keys.len(), values.len())));
        }
        let count = keys.len();
        let of_texts = matches!(keys, Column::Texts(_));
        let keys = match keys.clone() {
            Column::Ints(ints) => ints.into_iter().map(Key::Int).collect(),
            Column::Texts(texts) => texts.into_iter().map(Key::Text).collect(),
            Column::Numbers(data) => data_keys(data)?,
        };
        let mut places = HashMap::with_capacity(count);
        for (at, key) in keys.into_iter().enumerate() {
            // Of a key that comes twice, onnxruntime takes the first value.
            places.entry(key).or_insert(at);
        }
        let device = burn::tensor::Device::flex();
        let values = match (values.clone(), unknown) {
            (Column::Texts(mut texts), Column::Texts(unknown)) => {
                texts.extend(unknown);
                Value::Texts(Texts::new(vec![count + 1], texts)?)
            }
            (Column::Ints(mut ints), Column::Ints(unknown)) => {
                ints.extend(unknown);
                Value::from_data(TensorData::new(ints, [count + 1]), device.as_dispatch())?
            }
            (Column::Numbers(data), Column::Numbers(unknown)) => {
                let dtype = data.dtype();
                let bytes = [data.bytes().to_vec(), unknown.convert_dtype(dtype).bytes().to_vec()].concat();
                Value::from_data(TensorData::from_bytes_vec(bytes, vec![count + 1], dtype), device.as_dispatch())?
            }
            _ => return Err(OpError::new("its default value is of another type than its values")),
        };
        Ok(Lookup { places, values, unknown: count, of_texts })
    }

    /// The values of a tensor's elements.
    fn apply(&self, x: Value, device: &burn_dispatch::DispatchDevice) -> Result<Value, OpError> {
        let dims = x.shape();
        if matches!(x, Value::Texts(_)) != self.of_texts {
            let wanted = if self.of_texts { "texts" } else { "numbers" };
            return Err(OpError(format!("expects {wanted} and gets {}", x.kind())));
        }
        let keys = keys(x)?;
        let places = keys.iter().map(|key| self.places.get(key).copied().unwrap_or(self.unknown));
        if let Value::Texts(values) = &self.values {
            let texts = places.map(|at| Arc::clone(&values.as_slice()[at])).collect();
            return Ok(Value::Texts(Texts::new(dims, texts)?));
        }
        picked(self.values.clone(), 1, places.map(Some), dims, device)
    }
}

fn label_encoder(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let (text, int, float) = (
        attributes.text("default_string", "_Unused")?,
        attributes.int("default_int64", -1)?,
        attributes.float("default_float", -0.0)?,
    );
    let given = Column::tensor(build, "default_tensor")?;
    let default = |values: &Column| {
        given.clone().unwrap_or_else(|| match values {
            Column::Texts(_) => Column::Texts(shared(vec![text.clone()])),
            Column::Ints(_) => Column::Ints(vec![int]),
            Column::Numbers(data) if data.dtype().is_float() => Column::Numbers(TensorData::from([float])),
            Column::Numbers(_) => Column::Numbers(TensorData::from([int])),
        })
    };
    // Opset 1: texts to their numbers, or numbers to their texts, as the input is.
    if let Some(classes) = attributes.texts("classes_strings")? {
        let (numbers, texts) = (Column::Ints((0..classes.len() as i64).collect()), Column::Texts(shared(classes)));
        let to_ints = Lookup::new(&texts, &numbers, default(&numbers))?;
        let to_texts = Lookup::new(&numbers, &texts, default(&texts))?;
        return Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let lookup = if matches!(x, Value::Texts(_)) { &to_ints } else { &to_texts };
            lookup.apply(x, args.device)
        }));
    }
    let missing = || OpError::new("it has no keys or no values");
    let (keys, values) =
        (Column::of(build, "keys")?.ok_or_else(missing)?, Column::of(build, "values")?.ok_or_else(missing)?);
    let lookup = Lookup::new(&keys, &values, default(&values))?;
    Ok(Kernel::one(move |mut args| lookup.apply(args.take(0)?, args.device)))
}

/// A one among zeros for each element, at the place of its category.
fn one_hot(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let texts = build.attributes.texts("cats_strings")?.unwrap_or_default();
    let ints = build.attributes.ints("cats_int64s")?.unwrap_or_default();
    let zeros = build.attributes.flag("zeros", true)?;
    if texts.is_empty() == ints.is_empty() {
        return Err(OpError::new("its categories must be either texts or integers"));
    }
    let of_texts = ints.is_empty();
    let categories: Vec<Key> = match of_texts {
        true => shared(texts).into_iter().map(Key::Text).collect(),
        false => ints.into_iter().map(Key::Int).collect(),
    };
    let count = categories.len();
    let places: HashMap<Key, usize> = categories.into_iter().enumerate().map(|(at, key)| (key, at)).collect();
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = x.shape();
        let keys: Vec<Key> = match x {
            Value::Texts(texts) if of_texts => texts.into_parts().1.into_iter().map(Key::Text).collect(),
            Value::Texts(_) | Value::Sequence(_) => {
                return Err(OpError(format!("expects numbers and gets {}", x.kind())));
            }
            _ if of_texts => return Err(OpError(format!("expects texts and gets {}", x.kind()))),
            // Fractions are cut off.
            numbers => integers(numbers.into_data()?)?.into_iter().map(Key::Int).collect(),
        };
        dims.push(count);
        let mut ones = vec![0f32; elements(&dims)?];
        for (i, key) in keys.iter().enumerate() {
            match places.get(key) {
                Some(at) => ones[i * count + at] = 1.0,
                // Rows of our own, made up to try the model, are of no category.
                None if zeros || args.budget.rehearses() => {}
                None => return Err(OpError(format!("{} is of no category that the model knows", said(key)))),
            }
        }
        if dims.len() == 2 {
            return matrix(ones, dims[0], args.device);
        }
        Value::from_data(TensorData::new(ones, dims), args.device)
    }))
}

/// An element in words.
fn said(key: &Key) -> String {
    match key {
        Key::Text(text) => format!("the text {}", Quoted(text)),
        Key::Int(number) => format!("the number {number}"),
        Key::Float(bits) => format!("the number {}", f64::from_bits(*bits)),
    }
}
