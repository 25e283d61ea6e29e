//! Where traces go and which requests have one: the keys of `[server]`, and the variables that OpenTelemetry has for all.

use http::header::{HeaderName, HeaderValue};
use http::{Uri, uri};
use percent_encoding::percent_decode_str;

use super::Layers;
use super::file::Table;
use super::problem::Report;
use super::setting::Setting;
use crate::telemetry::{Sampling, Settings};

/// OpenTelemetry's variables that are followed, beside those of spans' limits and resources, which its SDK reads itself.
pub(super) const VARIABLES: &[&str] = &[
    DISABLED,
    EXPORTER,
    TRACES_ENDPOINT,
    ENDPOINT,
    TRACES_PROTOCOL,
    PROTOCOL,
    TRACES_HEADERS,
    HEADERS,
    SERVICE_NAME,
    SAMPLER,
    SAMPLER_ARG,
];
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Checks everything about traces; `None` where there are to be none.
pub(super) fn check(table: &Table, layers: &Layers<'_>, report: &mut Report) -> Option<Settings> {
    let own = layers.strongest("otlp", table.get("otlp"));
    let ratio = layers.strongest("trace_ratio", table.get("trace_ratio"));
    // Checked in any case: all errors are told at once.
    let share = ratio.as_ref().and_then(|ratio| ratio.share(report));
    let standard = |name| layers.environment.standard(name);
    if standard(DISABLED).is_some_and(|setting| setting.is_text_of_any_case("true")) {
        return None;
    }
    let endpoint = match &own {
        Some(own) => endpoint(own, true, report),
        None => standard_endpoint(&standard, report),
    };
    let Some(endpoint) = endpoint else {
        if let Some(ratio) = ratio.filter(|_| own.is_none()) {
            ratio.refuse(report, "has no effect without otlp, the address of a collector");
        }
        return None;
    };
    let sampling = match ratio {
        Some(_) => Sampling { ratio: share.unwrap_or(1.0), ..Sampling::default() },
        None => standard_sampling(&standard, report),
    };
    let headers = standard(TRACES_HEADERS).or_else(|| standard(HEADERS));
    let headers = headers.map(|headers| header_list(&headers, report)).unwrap_or_default();
    let service_name = standard(SERVICE_NAME).and_then(|name| name.text(report).map(str::to_owned));
    Some(Settings { endpoint, headers, service_name, sampling })
}

/// The endpoint of OpenTelemetry's variables, unless they say that traces go nowhere.
fn standard_endpoint(standard: &impl Fn(&'static str) -> Option<Setting>, report: &mut Report) -> Option<Uri> {
    if standard(EXPORTER).is_some_and(|setting| setting.is_text("none")) {
        return None;
    }
    let found = match standard(TRACES_ENDPOINT) {
        Some(whole) => endpoint(&whole, false, report),
        None => endpoint(&standard(ENDPOINT)?, true, report),
    }?;
    if let Some(protocol) = standard(TRACES_PROTOCOL).or_else(|| standard(PROTOCOL))
        && !protocol.is_text("http/protobuf")
    {
        let message = "traces are sent by http/protobuf only, which collectors take on port 4318; \
                       OTEL_TRACES_EXPORTER=none sends none";
        protocol.refuse(report, message);
    }
    Some(found)
}

/// Where to post; `is_base`: the path of traces is still to be added.
fn endpoint(setting: &Setting, is_base: bool, report: &mut Report) -> Option<Uri> {
    let text = setting.text(report)?.trim();
    let found = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    match found.as_ref().and_then(Uri::scheme_str) {
        Some("http") => {}
        Some("https") => {
            let message = "TLS is not spoken to collectors: name one on this machine or in this network by http://, and let \
                           it pass traces on";
            setting.refuse(report, message);
            return None;
        }
        _ => {
            setting.refuse(report, "must be a collector's address, like http://127.0.0.1:4318");
            return None;
        }
    }
    let found = found?;
    if found.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        setting.refuse(report, "must not have a user or a password ('@'), which would stand in the log; say a header in OTEL_EXPORTER_OTLP_HEADERS");
        return None;
    }
    let base = found.path().trim_end_matches('/');
    if !is_base || base.ends_with(Settings::PATH) {
        return Some(found);
    }
    let mut parts = uri::Parts::from(found.clone());
    parts.path_and_query = format!("{base}{}", Settings::PATH).parse().ok();
    Uri::from_parts(parts).ok()
}

fn standard_sampling(standard: &impl Fn(&'static str) -> Option<Setting>, report: &mut Report) -> Sampling {
    let Some(sampler) = standard(SAMPLER) else { return Sampling::default() };
    let ratio = |report: &mut Report| standard(SAMPLER_ARG).and_then(|arg| arg.share(report)).unwrap_or(1.0);
    let sampling = |follow_caller, ratio| Sampling { follow_caller, ratio };
    match sampler.text(report).unwrap_or_default() {
        "always_on" => sampling(false, 1.0),
        "always_off" => sampling(false, 0.0),
        "traceidratio" => sampling(false, ratio(report)),
        "parentbased_always_on" => sampling(true, 1.0),
        "parentbased_always_off" => sampling(true, 0.0),
        "parentbased_traceidratio" => sampling(true, ratio(report)),
        _ => {
            let message = "must be always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
                           parentbased_traceidratio";
            sampler.refuse(report, message);
            Sampling::default()
        }
    }
}

/// `key=value,key=value`, values percent-encoded. They may hold secrets, so a note does not repeat them.
fn header_list(setting: &Setting, report: &mut Report) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = setting.text(report).unwrap_or_default().split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().parse().ok()?, HeaderValue::from_str(&value).ok()?))
    };
    let found: Option<Vec<_>> = pairs.map(header).collect();
    if found.is_none() {
        report.note(setting.place.clone(), "must be a list of headers, like api-key=secret,tenant=a");
    }
    found.unwrap_or_default()
}
