//! Models that are processes: how they live, how they die, and who is told.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

#[path = "../folder/mod.rs"]
mod folder;
mod hostile;
mod isolation;
mod life;
mod opaque;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use uncork::batcher::Caps;
use uncork::registry::{Model, ModelSpec, Registry, Source};
use uncork::tensor::{Data, Tensor, Tensors};
use uncork::worker::Program;

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// The worker of these tests, which does what its words say.
fn program(how: &[&str]) -> Program {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/worker.py");
    let command = ["python3", "-u", file].into_iter().chain(how.iter().copied()).map(str::to_owned);
    Program::new(command.collect())
}

fn model(program: Program) -> ModelSpec {
    let caps = Caps::new(HANGS, 32);
    ModelSpec { runners: NonZeroUsize::MIN, ..ModelSpec::new("m", Source::Worker(program), caps) }
}

fn served(registry: &Registry) -> Arc<Model> {
    registry.model("m", None).unwrap()
}

/// One row for the worker that adds two numbers.
fn row(a: f32, b: f32) -> Tensors {
    Tensors::one("x", Tensor::new(vec![1, 2], vec![a, b]).unwrap())
}

fn sum(outputs: &Tensors) -> f32 {
    match outputs.get("y").unwrap().data() {
        Data::Fp32(sums) => sums[0],
        other => panic!("{other:?}"),
    }
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(HANGS, wait).await.is_ok(), "{what} did not come");
}
