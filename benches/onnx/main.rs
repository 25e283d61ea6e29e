//! Measures the ONNX interpreter: `cargo bench --bench onnx -- cases FOLDER` runs ONNX's own node tests, as
//! `benches/onnx/cases.py` has written them; `cargo bench --bench onnx -- speed MODEL.onnx` times a model at the orders of
//! `benches/onnx/speed.py`, beside onnxruntime.

mod cases;
mod speed;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Cargo adds its own flag behind the user's arguments.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["cases", folder] => cases::run(folder.as_ref(), ""),
        ["cases", folder, filter] => cases::run(folder.as_ref(), filter),
        ["speed", model] => speed::run(model),
        _ => {
            eprintln!("usage: cargo bench --bench onnx -- cases FOLDER [FILTER], or -- speed MODEL.onnx");
            ExitCode::from(3)
        }
    }
}
