//! What a server that runs can take over of settings that were read again.

use super::Config;
use crate::registry::Source;

impl Config {
    /// Whether nothing names a model, so that the embedded one is served.
    pub fn has_only_the_embedded_model(&self) -> bool {
        self.models.iter().any(|model| matches!(model.source, Source::Embedded))
    }

    /// The keys of `[server]` whose values are others in `new` and take effect at the next start only. Everything else can be taken
    /// over while the server runs: models, pools, and the folder of models.
    pub fn fixed_keys_changed(&self, new: &Config) -> Vec<&'static str> {
        let (a, b) = (&self.server, &new.server);
        let is_other = [
            ("http", self.http != new.http),
            ("grpc", self.grpc != new.grpc),
            ("admin", self.admin != new.admin),
            ("tokens_file, insecure or hosts", a.access != b.access),
            ("tls_certificate, tls_key or tls_client_ca", a.tls != b.tls),
            ("http_threads", self.http_threads != new.http_threads),
            ("max_connections", a.max_connections != b.max_connections),
            ("max_head_bytes", a.max_head_bytes != b.max_head_bytes),
            ("max_body_bytes", a.max_body_bytes != b.max_body_bytes),
            ("max_answer_bytes", a.max_answer_bytes != b.max_answer_bytes),
            ("max_bodies_bytes", a.max_bodies_bytes != b.max_bodies_bytes),
            ("head_timeout_ms", a.head_timeout != b.head_timeout),
            ("body_timeout_ms", a.body_timeout != b.body_timeout),
            ("idle_timeout_ms", a.idle_timeout != b.idle_timeout),
            ("write_timeout_ms", a.write_timeout != b.write_timeout),
            ("drain_delay_ms", a.drain_delay != b.drain_delay),
            ("drain_timeout_ms", a.drain_timeout != b.drain_timeout),
            ("log_format", self.log_format != new.log_format),
            ("otlp or trace_ratio", self.traces != new.traces),
        ];
        is_other.into_iter().filter(|(_, is_other)| *is_other).map(|(key, _)| key).collect()
    }
}
