//! Numbers written as texts and read from them, as onnxruntime's `Cast` does it.

use std::sync::Arc;

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use crate::ops::host::{Narrow, for_float, for_int};
use crate::texts::Texts;
use crate::value::{OpError, Value};
use uncork_model::quote::Quoted;

/// Digits that a float is written with.
const DIGITS: usize = 8;

/// The elements as texts; texts stay what they are.
pub(in crate::ops) fn written(x: Value) -> Result<Texts, OpError> {
    if let Value::Texts(texts) = x {
        return Ok(texts);
    }
    let data = x.into_data()?;
    let dims = data.shape().to_vec();
    let read = |e| OpError(format!("cannot be read: {e:?}"));
    let texts: Vec<Arc<str>> = match data.dtype() {
        DType::Bool(_) => {
            let flags = data.try_into_vec::<bool>().map_err(read)?;
            flags.into_iter().map(|flag| Arc::from(if flag { "1" } else { "0" })).collect()
        }
        dtype if dtype.is_float() => for_float!(dtype, E => {
            let numbers = data.try_into_vec::<E>().map_err(read)?;
            Ok(numbers.into_iter().map(|x| Arc::from(general(x.widen()))).collect())
        })?,
        dtype => for_int!(dtype, E => {
            let numbers = data.try_into_vec::<E>().map_err(read)?;
            Ok(numbers.into_iter().map(|x| Arc::from(x.to_string())).collect())
        })?,
    };
    Texts::new(dims, texts)
}

/// A float as C's `%.8g` writes it.
fn general(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "INF" } else { "-INF" }.into();
    }
    let scientific = format!("{x:.*e}", DIGITS - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS as i32).contains(&exponent) {
        return short(&format!("{x:.*}", (DIGITS as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

/// The numbers that texts say.
pub(in crate::ops) fn read(texts: Texts, to: DType, device: &DispatchDevice) -> Result<Value, OpError> {
    let (dims, texts) = texts.into_parts();
    let wrong = |text: &str, what: &str| OpError(format!("the text {} is not {what}", Quoted(text)));
    let int = |text: &Arc<str>| integer(text).ok_or_else(|| wrong(text, "an integer"));
    let data = if to.is_float() {
        let float = |text: &Arc<str>| text.trim().parse::<f64>().map_err(|_| wrong(text, "a number"));
        let numbers = texts.iter().map(float).collect::<Result<Vec<f64>, _>>()?;
        TensorData::new(numbers, dims).convert_dtype(to)
    } else if let DType::Bool(_) = to {
        let flags = texts.iter().map(|text| int(text).map(|x| x != 0)).collect::<Result<Vec<bool>, _>>()?;
        TensorData::new(flags, dims)
    } else {
        for_int!(to, E => {
            let fits = |x: i128| (E::LEAST..=E::GREATEST).contains(&x).then(|| E::narrow(x));
            let number = |text: &Arc<str>| fits(int(text)?).ok_or_else(|| wrong(text, "within the range of its type"));
            Ok(TensorData::new(texts.iter().map(number).collect::<Result<Vec<E>, _>>()?, dims))
        })?
    };
    Value::from_data(data, device)
}

/// A decimal number without its fraction.
fn integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    fraction.bytes().all(|b| b.is_ascii_digit()).then(|| whole.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_with_eight_digits_as_onnxruntime_does() {
        for (x, text) in [
            (1.0, "1"),
            (1.5, "1.5"),
            (0.1f32 as f64, "0.1"),
            (1e-5f32 as f64, "9.9999997e-06"),
            (1e10, "1e+10"),
            (123_456_789f32 as f64, "1.2345679e+08"),
            (-0.0, "-0"),
            (1.0 / 3.0, "0.33333333"),
            (1e-45f32 as f64, "1.4012985e-45"),
            (1_234_567.0, "1234567"),
            (12_345_678.0, "12345678"),
            (1e300, "1e+300"),
            (100_000.0, "100000"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-INF"),
        ] {
            assert_eq!(general(x), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused_with_the_text() {
        let device = burn::tensor::Device::flex();
        let read = |text: &str, to| {
            let texts = Texts::new(vec![1], vec![Arc::from(text)]).unwrap();
            let value = read(texts, to, device.as_dispatch()).map_err(|e| e.0)?;
            value.into_data().map_err(|e| e.0)
        };
        assert_eq!(read(" 2", DType::F32), Ok(TensorData::from([2f32])));
        assert_eq!(read("-inf", DType::F64), Ok(TensorData::from([f64::NEG_INFINITY])));
        assert_eq!(read("1.5", DType::I64), Ok(TensorData::from([1i64])));
        assert_eq!(read("-7", DType::Bool(burn_backend::BoolStore::Native)), Ok(TensorData::from([true])));
        assert_eq!(read("abc", DType::F32).unwrap_err(), "the text 'abc' is not a number");
        assert_eq!(read("", DType::I32).unwrap_err(), "the text '' is not an integer");
        assert_eq!(read("300", DType::U8).unwrap_err(), "the text '300' is not within the range of its type");
    }
}
