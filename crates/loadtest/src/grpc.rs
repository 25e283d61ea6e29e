//! The two calls of the Open Inference Protocol over gRPC that a load needs: a model's metadata, and inference.
//!
//! Source: <https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/open_inference_grpc.proto>

use prost::Message;

use super::v2::{Input, Metadata};

/// The path of inference.
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
/// The path of a model's metadata.
pub(super) const METADATA: &str = "/inference.GRPCInferenceService/ModelMetadata";

/// What each call says of itself.
pub fn headers() -> [(String, String); 2] {
    [("content-type", "application/grpc"), ("te", "trailers")].map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[derive(Clone, PartialEq, Message)]
struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TensorMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    inputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct ModelInferRequest {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<TensorMetadata>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    raw_input_contents: Vec<Vec<u8>>,
}

/// A message as gRPC sends it, not compressed.
fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(5 + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut bytes);
    bytes
}

/// Asks for a model's metadata.
pub(super) fn metadata_request(model: &str) -> Vec<u8> {
    framed(&ModelMetadataRequest { name: model.to_owned() })
}

/// What it was answered.
pub(super) fn metadata(answer: &[u8]) -> Option<Metadata> {
    let message = answer.get(5..).filter(|_| answer[0] == 0)?;
    let ModelMetadataResponse { name, inputs } = Message::decode(message).ok()?;
    let input = |TensorMetadata { name, datatype, shape }| Input { name, datatype, shape };
    Some(Metadata { name, inputs: inputs.into_iter().map(input).collect() })
}

/// A request with tensors by name, type, shape and bytes.
pub(super) fn request(model: &str, tensors: Vec<(String, String, Vec<i64>, Vec<u8>)>) -> Vec<u8> {
    let mut request = ModelInferRequest { model_name: model.to_owned(), ..ModelInferRequest::default() };
    for (name, datatype, shape, bytes) in tensors {
        request.inputs.push(TensorMetadata { name, datatype, shape });
        request.raw_input_contents.push(bytes);
    }
    framed(&request)
}
