//! A burn module of your own as a model: a closure that gets a batch as burn's tensors and returns the outputs.
//!
//! The module itself is built and filled with weights by the caller, as burn has it: any store of
//! [`burn_store`] reads them, from safetensors or burnpack files. Its crate must use the same burn
//! as this one, which is at hand as [`burn`] and [`burn_store`].
//!
//! ```
//! use uncork_model::tensor::DataType;
//! use uncork_model::runner::{Device, Signature, TensorSpec};
//! use uncork_onnx::burn::tensor::Tensor;
//! use uncork_onnx::device;
//! use uncork_onnx::module::{ModuleModel, Outputs};
//!
//! let device = device::open(Device::Flex)?;
//! let row = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![Some(2)]);
//! let signature = Signature { inputs: vec![row("x")], outputs: vec![row("y")] };
//! let twice = ModuleModel::new(signature, &device, |mut inputs| {
//!     let x: Tensor<2> = inputs.take("x")?;
//!     Ok(Outputs::one("y", x * 2.0)) // here a module's forward is called
//! });
//! # use uncork_model::{runner::Runner, tensor::Tensors};
//! # let x = uncork_model::tensor::Tensor::new(vec![1, 2], vec![1.0f32, 3.0])?;
//! # let y = twice.runner(std::num::NonZeroUsize::MIN).run(Tensors::one("x", x))?;
//! # assert_eq!(y.get("y").map(|y| y.data().clone()), Some(vec![2.0f32, 6.0].into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From there on it is a model like any other: `ModelSpec::new` of the crate `uncork` takes it with its two caps, and
//! `examples/module` serves one.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor, TensorData};

use uncork_model::runner::{Runner, RunnerError, Signature};
use uncork_model::tensor::{self, Tensors};

use crate::data;
use crate::fence::caught;
use crate::seat::Seat;

/// What a module computes of a batch.
type Forward = dyn Fn(Inputs<'_>) -> Result<Outputs, RunnerError> + Send + Sync;

/// A module behind a closure. Cheap to clone; clones share it, and with it the weights that it owns.
#[derive(Clone)]
pub struct ModuleModel {
    signature: Arc<Signature>,
    device: Device,
    forward: Arc<Forward>,
}

impl fmt::Debug for ModuleModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModuleModel { signature, device, .. } = self;
        f.debug_struct("ModuleModel").field("signature", signature).field("device", device).finish_non_exhaustive()
    }
}

impl ModuleModel {
    /// A model that takes and gives what `signature` says. `forward` owns the module, whose weights must be on `device`;
    /// it is called with the inputs of one batch at a time by each runner, from as many threads as there are runners.
    ///
    /// Rows must not depend on each other: row i of each output is the answer to row i of the inputs, whoever shares the
    /// batch. A module that normalises over its batch has to be in inference mode.
    pub fn new(
        signature: Signature,
        device: &Device,
        forward: impl Fn(Inputs<'_>) -> Result<Outputs, RunnerError> + Send + Sync + 'static,
    ) -> ModuleModel {
        ModuleModel { signature: Arc::new(signature), device: device.clone(), forward: Arc::new(forward) }
    }

    /// Names, types and shapes of inputs and outputs.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// An executor that computes on `threads` threads, where the device is the processor: the one that calls
    /// [`run`](Runner::run) becomes a worker of its own rayon pool at its first batch and stays one.
    pub fn runner(&self, threads: NonZeroUsize) -> ModuleRunner {
        ModuleRunner { model: self.clone(), seat: Seat::new(threads) }
    }
}

/// One executor of a [`ModuleModel`]. The weights are shared with all others.
#[derive(Debug)]
pub struct ModuleRunner {
    model: ModuleModel,
    seat: Seat,
}

impl Runner for ModuleRunner {
    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let ModuleModel { signature, device, forward } = &self.model;
        let work = || {
            let outputs = forward(Inputs { device, rows: batch.rows(), tensors: batch.into_entries() })?;
            outputs.into_tensors(signature)
        };
        self.seat.run(|| caught(work).unwrap_or_else(|panic| Err(RunnerError::Failed(panic))))?
    }
}

/// The inputs of a batch, of the names, types and shapes that the signature promises.
#[derive(Debug)]
pub struct Inputs<'a> {
    device: &'a Device,
    rows: usize,
    tensors: Vec<(Arc<str>, tensor::Tensor)>,
}

impl Inputs<'_> {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The device that the tensors are put on.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// Moves the input called `name` to the device: `let ids: Tensor<2, Int> = inputs.take("ids")?`. Its elements take the
    /// device's own type of that kind, float32 and int32 unless it is set otherwise; a number that it cannot hold fails
    /// the batch. Fails also where the input was taken before, where the model has none of that name, and where the number
    /// of axes, the batch axis among them, is not `D`.
    pub fn take<const D: usize, K: Basic>(&mut self, name: &str) -> Result<Tensor<D, K>, RunnerError> {
        let at = self.tensors.iter().position(|(own, _)| **own == *name);
        let at =
            at.ok_or_else(|| RunnerError::Failed(format!("there is no input '{name}', or it is taken already")))?;
        let (_, tensor) = self.tensors.swap_remove(at);
        let axes = tensor.shape().len();
        if axes != D {
            return Err(RunnerError::Failed(format!(
                "input '{name}' has {axes} axes, batch included, and is taken with {D}"
            )));
        }
        Ok(Tensor::from_data(data::to_burn(tensor)?, self.device))
    }
}

/// The outputs of a batch, read back from the device: whoever holds them has waited for it, so the time of the batch is
/// that of its computation also where the device works behind the program's back.
#[derive(Debug)]
pub struct Outputs(Vec<(String, Result<TensorData, RunnerError>)>);

impl Outputs {
    /// The only output.
    pub fn one<const D: usize, K: Basic>(name: impl Into<String>, tensor: Tensor<D, K>) -> Outputs {
        Outputs(Vec::new()).and(name, tensor)
    }

    /// One more output. The order does not matter.
    pub fn and<const D: usize, K: Basic>(mut self, name: impl Into<String>, tensor: Tensor<D, K>) -> Outputs {
        let data = tensor.try_into_data().map_err(|e| RunnerError::Failed(format!("the device failed: {e}")));
        self.0.push((name.into(), data));
        self
    }

    /// The outputs that the signature promises, in its order and of its types.
    fn into_tensors(mut self, signature: &Signature) -> Result<Tensors, RunnerError> {
        let tensors = signature.outputs.iter().map(|spec| {
            let at = self.0.iter().position(|(name, _)| **name == *spec.name);
            let at = at.ok_or_else(|| RunnerError::Failed(format!("the closure gives no output '{}'", spec.name)))?;
            let (name, data) = self.0.swap_remove(at);
            let dtype = data::dtype(spec.datatype);
            let dtype =
                dtype.ok_or_else(|| RunnerError::Failed(format!("output '{name}' cannot be of byte strings")))?;
            let data = data?.try_cast(dtype).map_err(|e| RunnerError::Failed(format!("output '{name}': {e}")))?;
            Ok((Arc::clone(&spec.name), data::from_burn(data)?))
        });
        let tensors = tensors.collect::<Result<_, RunnerError>>()?;
        Tensors::new(tensors).map_err(|e| RunnerError::Failed(e.to_string()))
    }
}
