//! The network: which of three spirals is a point on? `train.py` trained it.

use std::path::Path;

use uncork::burn;
use uncork::burn::module::Module;
use uncork::burn::nn::{Linear, LinearConfig};
use uncork::burn::tensor::activation::{softmax, tanh};
use uncork::burn::tensor::{Device, Tensor};
use uncork::burn_store::{ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore, SafetensorsStoreError};
use uncork::onnx::module::{ModuleModel, Outputs};
use uncork::runner::{Signature, TensorSpec};
use uncork::tensor::DataType;

/// Three linear layers. Their names are those of the weights in the file.
#[derive(Module, Debug)]
pub(crate) struct Spirals {
    first: Linear,
    second: Linear,
    last: Linear,
}

impl Spirals {
    /// With random weights.
    pub(crate) fn new(device: &Device) -> Spirals {
        Spirals {
            first: LinearConfig::new(2, 32).init(device),
            second: LinearConfig::new(32, 32).init(device),
            last: LinearConfig::new(32, 3).init(device),
        }
    }

    /// With the weights of a safetensors file that PyTorch wrote.
    pub(crate) fn load(weights: &Path, device: &Device) -> Result<Spirals, SafetensorsStoreError> {
        let mut spirals = Spirals::new(device);
        let mut store = SafetensorsStore::from_file(weights).with_from_adapter(PyTorchToBurnAdapter);
        spirals.load_from(&mut store)?; // fails if one is missing
        Ok(spirals)
    }

    /// From points [n, 2] to the probabilities of each spiral [n, 3].
    pub(crate) fn forward(&self, points: Tensor<2>) -> Tensor<2> {
        let x = tanh(self.first.forward(points));
        let x = tanh(self.second.forward(x));
        softmax(self.last.forward(x), 1)
    }

    /// As a model that can be served.
    pub(crate) fn into_model(self, device: &Device) -> ModuleModel {
        let rows = |name: &str, length| vec![TensorSpec::new(name, DataType::Fp32, vec![Some(length)])];
        let signature = Signature { inputs: rows("points", 2), outputs: rows("probabilities", 3) };
        ModuleModel::new(signature, device, move |mut inputs| {
            let points = inputs.take("points")?;
            Ok(Outputs::one("probabilities", self.forward(points)))
        })
    }
}
