//! Serves a burn module of one's own over HTTP under two caps: a small network, trained by `train.py` beside this file,
//! that says on which of three spirals a point lies.
//!
//! ```text
//! cargo run --release --example module
//! curl -s http://127.0.0.1:8080/v2/models/spirals/infer -d '{
//!   "inputs": [{"name": "points", "shape": [1, 2], "datatype": "FP32", "data": [0.0, 0.5]}]}'
//! ```
//!
//! Another address is the first argument, another device (`wgpu`, `cuda`; built with that feature) the second.

mod spirals;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use spirals::Spirals;
use uncork::onnx::device;
use uncork::registry::{Caps, ModelSpec, Registry};
use uncork::runner::Device;
use uncork::server::{Options, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let device = arguments.next().map_or(Some(Device::Flex), |name| Device::from_name(&name));
    let device = device::open(device.ok_or("the device is one of flex, wgpu and cuda")?)?;

    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/module/spirals.safetensors");
    let model = Spirals::load(&weights, &device)?.into_model(&device);
    let caps = Caps::new(Duration::from_millis(50), 64);
    let spec = ModelSpec::new("spirals", model, caps);

    // Loading warms the model up, which takes a while: not on a thread that has other things to do.
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![spec])).await??;
    let server = Server::bind(&address, Options::default()).await?;
    println!("spirals on http://{}", server.address());
    server.serve(registry, async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
