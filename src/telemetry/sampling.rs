//! The sampler: requests by their caller's decision or by chance, batches always.

use opentelemetry::Context;
use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

use super::Sampling;

/// Requests by [`Sampling`]; whatever has links is a batch, or a stage of a sampled request, and is sampled.
#[derive(Debug, Clone)]
pub(super) struct LinkedOr(Sampler);

impl LinkedOr {
    pub(super) fn new(sampling: Sampling) -> LinkedOr {
        let by_chance = Sampler::TraceIdRatioBased(sampling.ratio);
        LinkedOr(if sampling.follow_caller { Sampler::ParentBased(Box::new(by_chance)) } else { by_chance })
    }
}

impl ShouldSample for LinkedOr {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[opentelemetry::KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        if links.is_empty() {
            return self.0.should_sample(parent, trace, name, kind, attributes, links);
        }
        let trace_state = parent.map(|cx| cx.span().span_context().trace_state().clone()).unwrap_or_default();
        SamplingResult { decision: SamplingDecision::RecordAndSample, attributes: Vec::new(), trace_state }
    }
}
