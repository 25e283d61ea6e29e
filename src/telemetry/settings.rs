//! Where traces go and which requests have one.

use http::Uri;
use http::header::{HeaderName, HeaderValue};

/// Settings of tracing, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where spans are posted, path included: `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: Uri,
    /// Headers of each post, as a collector in front of a service may ask for.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What this server is called in traces; `None`: what `OTEL_RESOURCE_ATTRIBUTES` says, or else `uncork`.
    pub service_name: Option<String>,
    /// Which requests have a trace.
    pub sampling: Sampling,
}

/// Which requests have a trace. Batches are not sampled: a batch has a span when one of its requests has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Whether a request that comes with a decision of its caller keeps it.
    pub follow_caller: bool,
    /// Share of the other requests, from 0 to 1.
    pub ratio: f64,
}

impl Default for Sampling {
    /// What OpenTelemetry has: the caller decides, and every request without a caller's decision is sampled.
    fn default() -> Sampling {
        Sampling { follow_caller: true, ratio: 1.0 }
    }
}

impl Settings {
    /// Path of traces below a collector's base address.
    pub const PATH: &str = "/v1/traces";

    /// Everything to `endpoint`, and the rest as OpenTelemetry has it.
    pub fn to(endpoint: Uri) -> Settings {
        Settings { endpoint, headers: Vec::new(), service_name: None, sampling: Sampling::default() }
    }
}
