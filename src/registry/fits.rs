//! Whether a model fits the bounds that it is given.

use std::time::Duration;

use super::spec::ModelSpec;
use crate::runner::{Signature, TensorSpec};
use crate::tensor::{DataType, Tensors};

/// Refuses a model of which the queue holds not one row: each has as many bytes as the example, and that is more than the queue may hold.
pub(super) fn a_queue(spec: &ModelSpec, signature: &Signature, example: &Tensors) -> Result<(), String> {
    let is_fixed = |input: &TensorSpec| input.datatype != DataType::Bytes && input.dims.iter().all(Option::is_some);
    let (row, most) = (example.byte_len() / example.rows().max(1), spec.max_queue_bytes.get());
    if row > most && signature.inputs.iter().all(is_fixed) {
        return Err(format!(
            "a row takes {row} bytes, and max_queue_bytes = {most}: no request could be queued; raise that, or leave it out"
        ));
    }
    Ok(())
}

/// Why the latency cap cannot be kept, where the fastest batch of the smallest size is slower than that, or is given up before it is done.
pub(super) fn no_caps(spec: &ModelSpec, seen: &[(usize, Duration)]) -> Option<String> {
    let &(rows, _) = seen.first()?;
    let fastest = seen.iter().filter(|(n, _)| *n == rows).map(|(_, time)| *time).min()?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if fastest >= spec.stuck_after {
        return Some(format!(
            "its smallest batch takes {:.1} ms, and stuck_after_ms = {}: every batch will be given up, and its requests get 500; raise that, or \
             leave it out",
            ms(fastest),
            ms(spec.stuck_after)
        ));
    }
    (fastest > spec.max_latency).then(|| {
        format!(
            "its smallest batch takes {:.1} ms, which is beyond max_latency_ms = {}: nearly every request will be refused; raise the \
             cap, or use a faster model or device",
            ms(fastest),
            ms(spec.max_latency)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::{Caps, Source};
    use super::*;
    use crate::tensor::Tensor;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn spec() -> ModelSpec {
        let source = Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO };
        ModelSpec::new("m", source, Caps::new(ms(50), 8))
    }

    #[test]
    fn a_model_whose_rows_are_larger_than_its_queue_is_refused() {
        let spec = |bytes| ModelSpec { max_queue_bytes: NonZeroUsize::new(bytes).expect("some"), ..spec() };
        let example = Tensors::one("x", Tensor::new(vec![2, 4], vec![0f32; 8]).expect("a tensor"));
        let signature = |width| {
            let input = TensorSpec::new("x", DataType::Fp32, vec![width]);
            Signature { inputs: vec![input], outputs: Vec::new() }
        };
        assert_eq!(a_queue(&spec(16), &signature(Some(4)), &example), Ok(()));
        let why = a_queue(&spec(15), &signature(Some(4)), &example).expect_err("16 bytes do not fit 15");
        assert!(why.contains("a row takes 16 bytes, and max_queue_bytes = 15"), "{why}");
        assert_eq!(a_queue(&spec(15), &signature(None), &example), Ok(()), "callers may send shorter ones");
    }

    #[test]
    fn a_batch_that_takes_longer_than_the_cap_or_is_given_up_is_told() {
        let told = |took: u64, stuck_after: u64| {
            let spec = ModelSpec { stuck_after: ms(stuck_after), ..spec() };
            no_caps(&spec, &[(1, ms(took + 5)), (1, ms(took)), (8, ms(400))])
        };
        assert_eq!(told(50, 10_000), None, "by the quickest of the smallest size");
        assert!(told(51, 10_000).is_some_and(|why| why.contains("beyond max_latency_ms = 50")));
        assert!(told(30, 20).is_some_and(|why| why.contains("takes 30.0 ms, and stuck_after_ms = 20")));
        assert_eq!(told(30, 31), None);
    }
}
