//! `uncork worker`: what `isolation = "process"` starts.

use std::process::ExitCode;

use crate::config::Isolated;
use crate::onnx::OnnxModel;
use crate::opaque;
use crate::runner::{Rows, Signature};
use crate::worker::{Hosted, host};

/// Run one ONNX model for the server that started this process.
#[derive(Debug, clap::Args)]
pub(super) struct Worker {}

impl Worker {
    /// Answers batches until the server is gone.
    pub(super) fn run(self) -> ExitCode {
        ExitCode::from(host(|target| load(target.unwrap_or_default())))
    }
}

fn load(target: &str) -> Result<Hosted, String> {
    let Isolated { path, device, shapes, threads } = Isolated::read(target)?;
    let model = OnnxModel::open_as(&path, device, &shapes).map_err(|error| format!("{}: {error}", path.display()))?;
    opaque::check_tensors(model.signature()).map_err(|error| format!("{}: {error}", path.display()))?;
    if !has_rows_in_front(model.signature()) {
        return Err(format!(
            "{}: isolation = \"process\" is for models whose tensors all have their rows along the first axis; leave it out",
            path.display()
        ));
    }
    let (runner, example) = (model.runner(threads), model.example().clone());
    Ok(Hosted { runner: Box::new(runner), platform: "onnx_burn".into(), example: Some(example) })
}

fn has_rows_in_front(signature: &Signature) -> bool {
    signature.inputs.iter().chain(&signature.outputs).all(|spec| spec.rows == Rows::Axis(0))
}
