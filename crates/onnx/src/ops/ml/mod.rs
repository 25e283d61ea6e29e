//! The operators of `ai.onnx.ml`: what scikit-learn, XGBoost, LightGBM and CatBoost export beside ONNX's own.

pub(super) mod columns;
pub(super) mod encode;
mod ensemble;
pub(super) mod linear;
mod scores;
pub(super) mod svm;
pub(super) mod trees;
