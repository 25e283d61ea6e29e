//! gRPC's own health checks: of the server, of its services, and of models by their names.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::StatusCode;
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;

use super::message::{framed, write};
use super::proto::health::HealthCheckResponse;
use super::proto::health::health_check_response::ServingStatus;
use crate::error::Error;
use crate::registry::Registry;
use crate::server::http2::Line;
use crate::server::status::Refusal;

/// How often one who watches is looked after: models tell nobody when they come, go or are stuck.
const LOOK: Duration = Duration::from_millis(250);

/// Whether what is called so is served; `None` where nothing is.
fn status(registry: &Registry, service: &str) -> Option<ServingStatus> {
    let is_serving = match service {
        "" | "inference.GRPCInferenceService" | "grpc.health.v1.Health" => registry.is_ready(),
        name => match registry.model(name, None) {
            Ok(model) => !registry.is_draining() && model.stuck().is_none(),
            Err(Error::Loading { .. }) => false,
            Err(_) => return None,
        },
    };
    Some(if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing })
}

pub(super) fn check(registry: &Registry, service: &str) -> Result<HealthCheckResponse, Refusal> {
    let status = status(registry, service);
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, "no service and no model is called so");
    status.map(|status| HealthCheckResponse { status: status.into() }).ok_or_else(unknown)
}

/// The status now, and each time that it has changed, until the server goes. Keeps its `seat` until then.
pub(super) fn watch(
    registry: Registry,
    service: String,
    line: Line,
    seat: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Refusal>> {
    let watching = (registry, service, line, seat, None);
    stream::unfold(Some(watching), |watching| async move {
        let (registry, service, line, seat, mut told) = watching?;
        loop {
            let now = status(&registry, &service).unwrap_or(ServingStatus::ServiceUnknown);
            if told != Some(now) {
                told = Some(now);
                let answer = HealthCheckResponse { status: now.into() };
                let message = framed(answer.encoded_len(), |to| write(&answer, to));
                return Some((Ok(message.into()), Some((registry, service, line, seat, told))));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = line.closing() => {
                    return Some((Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is going")), None));
                }
            }
        }
    })
}
