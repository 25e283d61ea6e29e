//! A burn module of one's own as a model: what it takes and gives, and what becomes of mistakes in its closure.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use uncork_model::runner::{Device, Runner, RunnerError, Signature, TensorSpec};
use uncork_model::tensor::{Data, DataType, Tensor, Tensors};
use uncork_onnx::burn;
use uncork_onnx::burn::module::Module;
use uncork_onnx::burn::nn::{Linear, LinearConfig};
use uncork_onnx::burn::tensor::{Bool, Device as BurnDevice, Int, Tensor as BurnTensor};
use uncork_onnx::burn_store::{BurnpackStore, ModuleSnapshot, SafetensorsStore};
use uncork_onnx::device;
use uncork_onnx::module::{ModuleModel, Outputs};

const ONE: NonZeroUsize = NonZeroUsize::MIN;

fn device() -> BurnDevice {
    device::open(Device::Flex).unwrap()
}

fn tensors(name: &str, width: usize, data: impl Into<Data>) -> Tensors {
    let data = data.into();
    Tensors::one(name, Tensor::new(vec![data.len() / width, width], data).unwrap())
}

/// A model with an input `ids` INT64 [-1, 3], and outputs `sum` INT64 [-1, 1] and `positive` BOOL [-1, 3].
fn sums(forward: impl Fn(BurnTensor<2, Int>) -> Outputs + Send + Sync + 'static) -> ModuleModel {
    let spec = |name: &str, datatype, width| TensorSpec::new(name, datatype, vec![Some(width)]);
    let signature = Signature {
        inputs: vec![spec("ids", DataType::Int64, 3)],
        outputs: vec![spec("sum", DataType::Int64, 1), spec("positive", DataType::Bool, 3)],
    };
    ModuleModel::new(signature, &device(), move |mut inputs| {
        assert_eq!(inputs.rows(), 2);
        Ok(forward(inputs.take("ids")?))
    })
}

fn run_sums(model: &ModuleModel) -> Result<Tensors, RunnerError> {
    model.runner(ONE).run(tensors("ids", 3, vec![1i64, 2, 3, -4, 5, 6]))
}

#[test]
fn kinds_of_inputs_and_outputs_may_differ_and_outputs_come_in_the_order_of_the_signature() {
    let model = sums(|ids| {
        let positive: BurnTensor<2, Bool> = ids.clone().greater_elem(0);
        Outputs::one("positive", positive).and("sum", ids.sum_dim(1))
    });
    let outputs = run_sums(&model).unwrap();
    assert!(model.signature().agrees(&outputs, 2), "{outputs:?}");
    assert_eq!(outputs.get("sum").unwrap().data(), &Data::Int64(vec![6, 7]));
    assert_eq!(outputs.get("positive").unwrap().data(), &Data::Bool(vec![true, true, true, false, true, true]));
}

#[test]
fn a_number_that_the_device_cannot_hold_is_an_error_and_not_another_number() {
    let model = sums(|ids| Outputs::one("positive", ids.clone().greater_elem(0)).and("sum", ids.sum_dim(1)));
    let outputs = model.runner(ONE).run(tensors("ids", 3, vec![1i64 << 40, 0, 0, 1, 2, 3]));
    let sum = outputs.map(|found| found.get("sum").unwrap().data().clone());
    assert!(sum.is_err() || sum == Ok(Data::Int64(vec![1 << 40, 6])), "{sum:?}");
}

#[test]
fn what_a_closure_does_wrong_fails_the_batch_and_says_what_it_was() {
    let without = sums(|ids| Outputs::one("sum", ids.sum_dim(1)));
    assert_eq!(run_sums(&without).unwrap_err().to_string(), "the closure gives no output 'positive'");
    let panicking = sums(|ids| Outputs::one("sum", ids.reshape([17, 4])));
    assert!(run_sums(&panicking).unwrap_err().to_string().starts_with("panicked: "));

    let taking = |axes_and_name: fn(&mut uncork_onnx::module::Inputs<'_>) -> Result<(), RunnerError>| {
        let signature = sums(|_| unreachable!()).signature().clone();
        let model = ModuleModel::new(signature, &device(), move |mut inputs| {
            axes_and_name(&mut inputs).map(|()| Outputs::one("sum", BurnTensor::<1>::ones([1], inputs.device())))
        });
        run_sums(&model).unwrap_err().to_string()
    };
    assert_eq!(
        taking(|inputs| inputs.take::<3, Int>("ids").map(drop)),
        "input 'ids' has 2 axes, batch included, and is taken with 3"
    );
    let unknown = "there is no input 'id', or it is taken already";
    assert_eq!(taking(|inputs| inputs.take::<2, Int>("id").map(drop)), unknown);
}

/// The smallest network that has weights.
#[derive(Module, Debug)]
struct Line {
    only: Linear,
}

impl Line {
    /// With random weights.
    fn new() -> Line {
        Line { only: LinearConfig::new(2, 3).init(&device()) }
    }

    fn answer(self) -> Tensors {
        let signature = Signature {
            inputs: vec![TensorSpec::new("x", DataType::Fp32, vec![Some(2)])],
            outputs: vec![TensorSpec::new("y", DataType::Fp32, vec![Some(3)])],
        };
        let forward = move |mut inputs: uncork_onnx::module::Inputs<'_>| {
            Ok(Outputs::one("y", self.only.forward(inputs.take::<2, burn::tensor::Float>("x")?)))
        };
        let model = ModuleModel::new(signature, &device(), forward);
        model.runner(ONE).run(tensors("x", 2, vec![1f32, -2.0, 0.5, 3.0])).unwrap()
    }
}

#[test]
fn weights_come_from_files_and_all_must_be_there() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("line-{}", std::process::id()));
    let line = Line::new();
    line.save_into(&mut BurnpackStore::from_file(&path).overwrite(true)).unwrap();
    let mut copy = Line::new();
    copy.load_from(&mut BurnpackStore::from_file(&path)).unwrap();
    assert_eq!(copy.answer(), line.answer());

    let header = b"{}";
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header].concat()).unwrap();
    let error = Line::new().load_from(&mut SafetensorsStore::from_file(&path)).map(drop).unwrap_err().to_string();
    assert!(error.contains("only.weight"), "{error}");
    fs::remove_file(&path).unwrap();
}
