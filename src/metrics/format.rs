//! Formats of metrics, and which of them somebody wants.

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own text.
    Prometheus,
    /// OpenMetrics 1.0, which has room for trace ids beside values.
    OpenMetrics,
    /// Prometheus' messages in Protocol Buffers, which have room for native histograms as well.
    Protobuf,
}

impl Format {
    /// The format that whoever sends this `Accept` can read best.
    pub fn wanted(accept: &str) -> Format {
        let (mut wanted, mut best) = (Format::Prometheus, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let parameter = |name: &str| parts.clone().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            let format = match media_type {
                "application/openmetrics-text" => Format::OpenMetrics,
                "application/vnd.google.protobuf"
                    if parameter("encoding") == Some("delimited")
                        && parameter("proto") == Some("io.prometheus.client.MetricFamily") =>
                {
                    Format::Protobuf
                }
                _ => continue,
            };
            let weight = parameter("q").and_then(|q| q.parse().ok()).unwrap_or(1.0);
            if weight > best {
                (wanted, best) = (format, weight);
            }
        }
        wanted
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_the_greatest_weight_that_is_known_here() {
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, format) in [
            (String::new(), Format::Prometheus),
            ("text/html,*/*;q=0.8".into(), Format::Prometheus),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2".into(), Format::OpenMetrics),
            (format!("{protobuf};q=0.7, application/openmetrics-text;q=0.5"), Format::Protobuf),
            (format!("application/openmetrics-text;q=0.5,{protobuf}"), Format::Protobuf),
            (format!("{protobuf};q=0.4,application/openmetrics-text; q=0.5"), Format::OpenMetrics),
            (format!("{protobuf};q=0"), Format::Prometheus),
            (protobuf.replace("delimited", "text"), Format::Prometheus),
            (protobuf.replace("MetricFamily", "Other"), Format::Prometheus),
        ] {
            assert_eq!(Format::wanted(&accept), format, "{accept}");
        }
    }
}
