//! A stand-in for a model: a batch of n rows takes `base + n * per_row`, and x becomes y = 2x + 1.
//!
//! The time is slept, not computed, as if an accelerator worked: a dry run of a deployment costs no processor.

use std::sync::Arc;
use std::time::Duration;

use spin_sleep::{SpinSleeper, SpinStrategy};

use super::{Runner, RunnerError, Signature, TensorSpec};
use crate::tensor::{Data, DataType, Tensor, Tensors};

/// Input `x` FP32 [-1, 1], output `y` FP32 [-1, 1].
#[derive(Debug, Clone)]
pub struct Synthetic {
    base: Duration,
    per_row: Duration,
    signature: Signature,
}

impl Synthetic {
    /// A stand-in whose batch of n rows takes `base + n * per_row`.
    pub fn new(base: Duration, per_row: Duration) -> Synthetic {
        let spec = |name| TensorSpec::new(name, DataType::Fp32, vec![Some(1)]);
        Synthetic { base, per_row, signature: Signature { inputs: vec![spec("x")], outputs: vec![spec("y")] } }
    }
}

impl Runner for Synthetic {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn may_refuse(&self) -> bool {
        false
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        let time = self.base.saturating_add(self.per_row.saturating_mul(rows));
        // The kernel's sleep overshoots by some 60 µs, which would be part of every batch: the last stretch is spun. Who yields while he spins, as
        // is the crate's way, comes back when others have had their turns.
        SpinSleeper::default().with_spin_strategy(SpinStrategy::SpinLoopHint).sleep(time);
        let (shape, data) = match batch.into_entries().pop() {
            Some((_, tensor)) => tensor.into_parts(),
            None => return Err(RunnerError::Failed("a batch without tensors".into())),
        };
        let Data::Fp32(x) = data else { return Err(RunnerError::Failed("x is not FP32".into())) };
        let y: Vec<f32> = x.into_iter().map(|x| 2.0 * x + 1.0).collect();
        let y = Tensor::new(shape, y).map_err(|e| RunnerError::Failed(e.to_string()))?;
        Ok(Tensors::one(Arc::clone(&self.signature.outputs[0].name), y))
    }
}
