//! What is counted of HTTP, before it is known which model a request is for.

use std::sync::Arc;

use metrics::{Counter, Gauge, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::METADATA;
use super::catalogue::{self, TurnedAway};

/// Handles to the metrics of HTTP.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    /// By [`catalogue::CODES`].
    requests: Arc<[Counter]>,
    turned_away: [Counter; TurnedAway::ALL.len()],
    /// Connections that are open.
    pub connections: Gauge,
    /// 1 while the file of tokens cannot be used as it is.
    pub stale_tokens: Gauge,
    /// 1 while the certificate, or what belongs to it, cannot be used as it is.
    pub stale_certificate: Gauge,
    /// Unix time at which the first of the certificates expires; 0 where there is none.
    pub certificate_expires: Gauge,
}

impl HttpMetrics {
    pub(super) fn new(recorder: &PrometheusRecorder) -> HttpMetrics {
        let count = |code: &'static str| {
            let labels = vec![Label::from_static_parts("code", code)];
            recorder.register_counter(&Key::from_parts(catalogue::HTTP_REQUESTS.name, labels), &METADATA)
        };
        let turned_away = |why: TurnedAway| {
            let labels = vec![Label::from_static_parts("reason", why.label())];
            recorder.register_counter(&Key::from_parts(catalogue::TURNED_AWAY.name, labels), &METADATA)
        };
        let connections = Key::from_name(catalogue::HTTP_CONNECTIONS.name);
        let [stale_tokens, stale_certificate] = catalogue::FOLLOWED.map(|file| {
            let labels = vec![Label::from_static_parts("file", file)];
            recorder.register_gauge(&Key::from_parts(catalogue::STALE_FILES.name, labels), &METADATA)
        });
        HttpMetrics {
            requests: catalogue::CODES.map(count).into(),
            turned_away: TurnedAway::ALL.map(turned_away),
            connections: recorder.register_gauge(&connections, &METADATA),
            stale_tokens,
            stale_certificate,
            certificate_expires: recorder
                .register_gauge(&Key::from_name(catalogue::CERTIFICATE_EXPIRES.name), &METADATA),
        }
    }

    /// Counts an answer with this status.
    pub fn count(&self, status: u16) {
        let hundreds = [b'0' + (status / 100 % 10) as u8, b'0' + (status / 10 % 10) as u8, b'0' + (status % 10) as u8];
        let place = catalogue::CODES.iter().position(|code| code.as_bytes() == hundreds);
        if let Some(counter) = place.map_or(self.requests.last(), |place| self.requests.get(place)) {
            counter.increment(1);
        }
    }

    /// Counts a connection, or a request for inference, that no model counts.
    pub fn turn_away(&self, why: TurnedAway) {
        self.turned_away[why as usize].increment(1);
    }
}
