//! gRPC: the Open Inference Protocol v2 with Triton's additions, health checks and reflection.
//!
//! What makes a call a request like any other is elsewhere: `connection` stamps, names, logs and traces it, `access` knows who may make
//! it, `server::call` asks the model. Here a call is found by its path, its message read, and its answer written. tonic is not used: it
//! would turn messages into structures before there is room for them, and its macros would have burn's be built anew.

mod contents;
mod describe;
mod health;
mod infer;
mod message;
mod proto;
mod reflection;
mod reply;
mod request;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};

use self::infer::{Ask, Frame, Written};
use self::message::{Bounds, Message, Messages};
use self::proto::health::HealthCheckRequest;
use self::proto::inference::{
    ModelConfigRequest, ModelConfigResponse, ModelMetadataRequest, ModelReadyRequest, ModelReadyResponse,
    ModelStatisticsRequest, ModelStatisticsResponse, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveResponse,
    ServerReadyResponse,
};
use self::proto::reflection::ServerReflectionRequest;
pub(super) use self::reply::refused;

use super::access::{Bearer, Door, Right};
use super::app::App;
use super::arrival::Arrival;
use super::body::SMALL;
use super::http2::Line;
use super::quick::Quick;
use super::routes::{For, not_here};
use super::status::Refusal;
use super::v2::{SERVER_TIMING, repository};
use crate::quote::Quoted;
use crate::registry::Caller;
use crate::telemetry::RequestSpan;

/// Whether a request is a call of gRPC.
pub(super) fn is_meant<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    request.version() == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-"))
}

/// What can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    ServerLive,
    ServerReady,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelInfer,
    ModelStreamInfer,
    ModelConfig,
    ModelStatistics,
    RepositoryIndex,
    RepositoryModelLoad,
    RepositoryModelUnload,
    HealthCheck,
    HealthWatch,
    Reflection,
}

/// Each call: its path, and the right that it asks for. Probes ask for none.
const RPCS: [(&str, Rpc, Option<Right>); 16] = [
    ("/inference.GRPCInferenceService/ModelInfer", Rpc::ModelInfer, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/ModelStreamInfer", Rpc::ModelStreamInfer, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/ServerLive", Rpc::ServerLive, None),
    ("/inference.GRPCInferenceService/ServerReady", Rpc::ServerReady, None),
    ("/inference.GRPCInferenceService/ModelReady", Rpc::ModelReady, None),
    ("/inference.GRPCInferenceService/ServerMetadata", Rpc::ServerMetadata, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/ModelMetadata", Rpc::ModelMetadata, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/ModelConfig", Rpc::ModelConfig, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/ModelStatistics", Rpc::ModelStatistics, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/RepositoryIndex", Rpc::RepositoryIndex, Some(Right::Inference)),
    ("/inference.GRPCInferenceService/RepositoryModelLoad", Rpc::RepositoryModelLoad, Some(Right::Admin)),
    ("/inference.GRPCInferenceService/RepositoryModelUnload", Rpc::RepositoryModelUnload, Some(Right::Admin)),
    ("/grpc.health.v1.Health/Check", Rpc::HealthCheck, None),
    ("/grpc.health.v1.Health/Watch", Rpc::HealthWatch, None),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Rpc::Reflection, Some(Right::Inference)),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Rpc::Reflection, Some(Right::Inference)),
];

/// One call, and what it can reach.
pub(super) struct Desk {
    app: App,
    quick: Quick,
    line: Line,
    arrival: Arrival,
    span: RequestSpan,
}

impl Desk {
    /// For a call that came at `arrival`.
    pub(super) fn new(quick: &Quick, line: Line, arrival: Arrival, span: RequestSpan) -> Desk {
        Desk { app: quick.app.clone(), quick: quick.clone(), line, arrival, span }
    }

    /// Answers the call.
    pub(super) async fn answer(self, request: Request<Body>) -> Response {
        let instead = message::accepted_instead(request.headers());
        let mut response = self.call(request).await.unwrap_or_else(refused);
        response.headers_mut().extend(instead);
        response
    }

    async fn call(self, request: Request<Body>) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
        let headers = &parts.headers;
        if parts.method != Method::POST {
            return Err(Refusal::only("POST"));
        }
        let Some(&(route, rpc, right)) = RPCS.iter().find(|(known, ..)| *known == path) else {
            let message = format!("there is no method {}", Quoted(path));
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message));
        };
        self.span.route(&Method::POST, route);
        let bearer = match right {
            Some(right) => self.quick.door.check(right, &parts.method, headers)?,
            None => Bearer::default(),
        };
        check_kind(headers)?;
        if self.quick.serves == For::Operators && matches!(rpc, Rpc::ModelInfer | Rpc::ModelStreamInfer) {
            return Err(not_here());
        }
        let deadline = headers.get("grpc-timeout").map(deadline).transpose()?;
        let caller = if rpc == Rpc::ModelInfer { self.quick.door.pace(bearer)? } else { bearer.caller };
        let bounds = match rpc {
            Rpc::ModelInfer | Rpc::ModelStreamInfer => Bounds { most: usize::MAX, within: self.of_use(deadline) },
            _ => Bounds { most: SMALL, within: self.app.options.body_timeout },
        };
        let room = self.app.room.of(caller);
        let (is_stream, line) = (matches!(rpc, Rpc::ModelStreamInfer | Rpc::Reflection), &self.line);
        let place = is_stream.then(|| line.stream()).transpose()?;
        let body = match right {
            _ if is_stream => Body::new(body),
            Some(_) => Body::new(line.awaited(body)),
            None => Body::new(line.awaited(body).of_a_stranger()),
        };
        let messages = Messages::new(headers, body, &self.app.options, &room, bounds, self.line.clone());
        match rpc {
            Rpc::ModelInfer => self.model_infer(messages, caller, deadline).await,
            Rpc::ModelStreamInfer => {
                let encoding = message::encoding(messages.accepted());
                let mut response = reply::streaming(self.infer_each(messages, bearer, deadline, place));
                response.headers_mut().extend(encoding);
                Ok(response)
            }
            Rpc::HealthWatch => {
                let HealthCheckRequest { service } = decoded(&messages.only().await?)?;
                let seat = Arc::clone(&self.app.watchers).try_acquire_owned().map_err(|_| {
                    let message = "as many watch as may; ask with Check, or again later";
                    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(Duration::from_secs(10))
                })?;
                Ok(reply::streaming(health::watch(self.app.registry.clone(), service, self.line, seat)))
            }
            Rpc::Reflection => {
                let at = (messages, self.quick.door, self.line, place);
                Ok(reply::streaming(stream::unfold(at, move |(mut messages, door, line, place)| async move {
                    let asked = tokio::select! {
                        asked = messages.next() => asked,
                        () = line.closing() => Ok(None),
                    };
                    let answer = match asked.transpose()? {
                        Ok(asked) => reflected(asked, &door, bearer).await,
                        Err(refusal) => Err(refusal),
                    };
                    Some((answer, (messages, door, line, place)))
                })))
            }
            Rpc::RepositoryModelLoad => {
                let RepositoryModelLoadRequest { model_name, parameters, .. } = decoded(&messages.only().await?)?;
                repository::load_by_name(&self.app, &model_name, parameters.keys()).await?;
                Ok(reply::unary(framed(&RepositoryModelLoadResponse {})))
            }
            Rpc::RepositoryModelUnload => {
                let RepositoryModelUnloadRequest { model_name, .. } = decoded(&messages.only().await?)?;
                repository::unload_by_name(&self.app, &model_name).await?;
                Ok(reply::unary(framed(&RepositoryModelUnloadResponse {})))
            }
            other => self.describe(other, &messages.only().await?).map(reply::unary),
        }
    }

    /// How long a message for inference is of use after it came, of which it is not known yet what model it is for.
    fn of_use(&self, deadline: Option<Duration>) -> Duration {
        let models = self.app.registry.models();
        let longest = models.iter().map(|model| model.spec().max_latency).max();
        deadline.into_iter().chain(longest).min().unwrap_or(self.app.options.body_timeout)
    }

    async fn model_infer(
        self,
        messages: Messages,
        caller: Caller,
        deadline: Option<Duration>,
    ) -> Result<Response, Refusal> {
        let Message { whole, coding, room, .. } = messages.only().await?;
        let (arrival, span, frame) = (self.arrival.0, &self.span, Frame::Alone);
        let asked = self.infer(Ask { whole: &whole, room: &room, arrival, caller, deadline, span, frame });
        let Written { message, timing } = asked.await?;
        let mut response = reply::unary(message::packed(message, coding, &room).await?);
        let headers = response.headers_mut();
        headers.extend(message::encoding(coding));
        headers
            .insert(SERVER_TIMING, HeaderValue::try_from(timing).expect("digits and ASCII words are a header's value"));
        Ok(response)
    }

    /// Answers a call that asks what there is.
    fn describe(&self, rpc: Rpc, asked: &Message) -> Result<Bytes, Refusal> {
        let registry = &self.app.registry;
        let model = |name: &str, version: &str| registry.model(name, Some(version).filter(|v| !v.is_empty()));
        Ok(match rpc {
            Rpc::ServerLive => framed(&ServerLiveResponse { live: true }),
            Rpc::ServerReady => framed(&ServerReadyResponse { ready: registry.is_ready() }),
            Rpc::ModelReady => {
                let ModelReadyRequest { name, version } = decoded(asked)?;
                // Whoever waits for a model that is to come asks again and again, and takes an error for the end: as Triton has it, one
                // that is not known is not ready.
                let model = model(&name, &version);
                let ready = model.is_ok_and(|model| !registry.is_draining() && model.stuck().is_none());
                framed(&ModelReadyResponse { ready })
            }
            Rpc::ServerMetadata => framed(&describe::server()),
            Rpc::ModelMetadata => {
                let ModelMetadataRequest { name, version } = decoded(asked)?;
                framed(&describe::metadata(registry, &*model(&name, &version)?))
            }
            Rpc::ModelConfig => {
                let ModelConfigRequest { name, version } = decoded(asked)?;
                framed(&ModelConfigResponse { config: Some(describe::config(registry, &*model(&name, &version)?)) })
            }
            Rpc::ModelStatistics => {
                let ModelStatisticsRequest { name, version } = decoded(asked)?;
                let model_stats = if name.is_empty() {
                    registry.models().iter().map(|model| describe::statistics(model)).collect()
                } else {
                    vec![describe::statistics(&*model(&name, &version)?)]
                };
                framed(&ModelStatisticsResponse { model_stats })
            }
            Rpc::RepositoryIndex => {
                let RepositoryIndexRequest { ready, .. } = decoded(asked)?;
                framed(&describe::index(&self.app, ready))
            }
            Rpc::HealthCheck => {
                let HealthCheckRequest { service } = decoded(asked)?;
                framed(&health::check(registry, &service)?)
            }
            _ => return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "this call is not served")),
        })
    }
}

/// The only form of messages that is served is protobuf.
fn check_kind(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc").unwrap_or_default();
    if rest.is_empty() || rest.starts_with(b"+proto") || rest.starts_with(b";") {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the only messages served are protobuf: application/grpc"))
}

/// The value of `grpc-timeout`: at most eight digits and a unit.
fn deadline(value: &HeaderValue) -> Result<Duration, Refusal> {
    let wrong = || Refusal::bad_request("grpc-timeout is not digits and one of H, M, S, m, u, n");
    let text = value.to_str().map_err(|_| wrong())?;
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let n = digits.parse().map_err(|_| wrong())?;
    Ok(match unit {
        "H" => Duration::from_secs(3600 * n),
        "M" => Duration::from_secs(60 * n),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return Err(wrong()),
    })
}

/// Answers a question about what there is to be called.
async fn reflected(asked: Message, door: &Door, bearer: Bearer) -> Result<Bytes, Refusal> {
    door.recheck(bearer, Right::Inference)?;
    let question: ServerReflectionRequest = decoded(&asked.unpacked().await?)?;
    Ok(framed(&reflection::answer(question)))
}

/// A message of which nothing is large.
fn decoded<M: prost::Message + Default>(message: &Message) -> Result<M, Refusal> {
    M::decode(&message.whole.bytes[..])
        .map_err(|error| Refusal::bad_request(format!("the message is not protobuf: {error}")))
}

fn framed(answer: &impl prost::Message) -> Bytes {
    message::framed(answer.encoded_len(), |to| message::write(answer, to)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_digits_and_a_unit() {
        let of = |text: &str| deadline(&HeaderValue::from_str(text).unwrap()).ok();
        assert_eq!(of("100m"), Some(Duration::from_millis(100)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(3600 * 99_999_999)));
        assert_eq!((of("1S"), of("5u")), (Some(Duration::from_secs(1)), Some(Duration::from_micros(5))));
        for wrong in ["", "m", "1", "123456789m", "-1m", "1 m", "1s", "ü"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
