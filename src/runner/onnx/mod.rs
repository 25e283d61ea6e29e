//! An ONNX file on burn.
