//! gRPC's server reflection: which services there are, and the files that describe them.

use std::sync::LazyLock;

use super::proto::DESCRIPTORS;
use super::proto::reflection::server_reflection_request::MessageRequest;
use super::proto::reflection::server_reflection_response::MessageResponse;
use super::proto::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use super::wire::{Fields, Malformed};

/// `NOT_FOUND`.
const NOT_FOUND: i32 = 5;

/// A file, by the numbers of `google/protobuf/descriptor.proto`. None of ours imports another.
#[derive(Debug, Default)]
struct File {
    name: &'static str,
    descriptor: &'static [u8],
    services: Vec<String>,
    /// Full names of its messages, enumerations, services and their methods.
    symbols: Vec<String>,
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| files().expect("the descriptors are whole: a test reads them"));

fn files() -> Result<Vec<File>, Malformed> {
    Fields(DESCRIPTORS).map(|file| file_of(file?.1.bytes()?)).collect()
}

fn file_of(descriptor: &'static [u8]) -> Result<File, Malformed> {
    let mut file = File { descriptor, ..File::default() };
    let mut package = "";
    for field in Fields(descriptor) {
        match field? {
            (1, value) => file.name = value.text()?,
            (2, value) => package = value.text()?,
            (4, value) => named(package, value.bytes()?, &mut file.symbols)?,
            (5, value) => file.symbols.push(format!("{package}.{}", name_of(value.bytes()?)?)),
            (6, value) => {
                let service = format!("{package}.{}", name_of(value.bytes()?)?);
                for field in Fields(value.bytes()?) {
                    if let (2, method) = field? {
                        file.symbols.push(format!("{service}.{}", name_of(method.bytes()?)?));
                    }
                }
                file.symbols.push(service.clone());
                file.services.push(service);
            }
            _ => {}
        }
    }
    Ok(file)
}

/// The first field of a descriptor.
fn name_of(descriptor: &'static [u8]) -> Result<&'static str, Malformed> {
    Fields(descriptor).find_map(|field| field.ok().filter(|(number, _)| *number == 1)).ok_or(Malformed)?.1.text()
}

/// A message and what is declared in it.
fn named(scope: &str, message: &'static [u8], symbols: &mut Vec<String>) -> Result<(), Malformed> {
    let name = format!("{scope}.{}", name_of(message)?);
    for field in Fields(message) {
        match field? {
            (3, nested) => named(&name, nested.bytes()?, symbols)?,
            (4, kind) => symbols.push(format!("{name}.{}", name_of(kind.bytes()?)?)),
            _ => {}
        }
    }
    symbols.push(name);
    Ok(())
}

/// The answer to one question.
pub(super) fn answer(request: ServerReflectionRequest) -> ServerReflectionResponse {
    let descriptor = |found: Option<&File>| match found {
        Some(file) => MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
            file_descriptor_proto: vec![file.descriptor.into()],
        }),
        None => missing(),
    };
    let response = match &request.message_request {
        Some(MessageRequest::ListServices(_)) => {
            let services = FILES.iter().flat_map(|file| &file.services);
            let service = services.map(|name| ServiceResponse { name: name.clone() }).collect();
            MessageResponse::ListServicesResponse(ListServiceResponse { service })
        }
        Some(MessageRequest::FileByFilename(name)) => descriptor(FILES.iter().find(|file| file.name == name)),
        Some(MessageRequest::FileContainingSymbol(symbol)) => descriptor(containing(symbol)),
        Some(MessageRequest::AllExtensionNumbersOfType(name)) if containing(name).is_some() => {
            let (base_type_name, extension_number) = (name.clone(), Vec::new());
            MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse { base_type_name, extension_number })
        }
        _ => missing(),
    };
    ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(response),
    }
}

fn containing(symbol: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.symbols.iter().any(|own| own == symbol))
}

fn missing() -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse {
        error_code: NOT_FOUND,
        error_message: "nothing here is called so".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_message_and_method_is_found_in_its_file() {
        let services: Vec<_> = files().unwrap().into_iter().flat_map(|file| file.services).collect();
        let expected = [
            "inference.GRPCInferenceService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ];
        assert_eq!(services, expected);
        for symbol in [
            "inference.ModelInferRequest.InferInputTensor",
            "inference.GRPCInferenceService.ModelInfer",
            "inference.ModelInstanceGroup.Kind",
            "inference.DataType",
            "inference.GRPCInferenceService",
        ] {
            assert_eq!(containing(symbol).unwrap().name, "inference.proto", "{symbol}");
        }
        assert!(containing("inference.Nothing").is_none());
    }
}
