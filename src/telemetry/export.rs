//! Sends spans to a collector, from a bounded queue and by a task of its own: what is not taken costs no request anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, InstrumentationScope, Key, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::post::post;
use super::sampling::LinkedOr;
use super::{Limit, Settings, Tracer};

/// Spans that wait to be sent; what comes beyond is dropped and counted. A span has about a kilobyte, so this is some
/// 8 MB at most, and 8 posts' worth of a burst.
const QUEUE: usize = 8192;
/// Most spans of one post.
const POST: usize = 1024;
/// How long a span waits for others to be sent with.
const GATHER: Duration = Duration::from_secs(1);
/// The same complaint about the collector is logged so often at most.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Links of one span: more than a batch has requests. OpenTelemetry's default of 128 would cut large batches' links.
const LINKS: u32 = 1 << 16;
/// What a server is called where nothing else is said.
const SERVICE: &str = "uncork";

/// Spans so far, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Taken by the collector.
    pub sent: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Lost with a post that failed, or refused by the collector.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Tally {
    sent: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Tracing, switched on. Dropping it, or [`finish`](Self::finish), ends the sending.
#[derive(Debug)]
pub struct Traces {
    tracer: Tracer,
    tally: Arc<Tally>,
    stop: oneshot::Sender<()>,
    sending: JoinHandle<()>,
}

impl Traces {
    /// Starts to send. Must be called within a tokio runtime with I/O and time enabled.
    pub fn start(settings: Settings) -> Traces {
        let tally = Arc::new(Tally::default());
        let (queue, spans) = mpsc::channel(QUEUE);
        let (stop, stopped) = oneshot::channel();
        let resource = resource(&settings);
        let provider = SdkTracerProvider::builder()
            .with_sampler(LinkedOr::new(settings.sampling))
            .with_max_links_per_span(LINKS)
            .with_resource(resource.clone())
            .with_span_processor(Queue { queue, tally: Arc::clone(&tally) })
            .build();
        let scope = InstrumentationScope::builder(SERVICE).with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = Tracer(Some(Arc::new(provider.tracer_with_scope(scope))));
        let sender = Sender {
            spans,
            resource: ResourceAttributesWithSchema::from(&resource),
            settings,
            tally: Arc::clone(&tally),
            complaint: Limit::new(COMPLAIN_EVERY),
            told_dropped: 0,
        };
        Traces { tracer, tally, stop, sending: tokio::spawn(sender.run(stopped)) }
    }

    /// What makes the spans.
    pub fn tracer(&self) -> Tracer {
        self.tracer.clone()
    }

    /// What became of the spans so far.
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// Sends what waits, for so long at most, and ends.
    pub async fn finish(self, within: Duration) -> Counts {
        // A task that is gone has nothing to send.
        let _ = self.stop.send(());
        let mut sending = self.sending;
        if tokio::time::timeout(within, &mut sending).await.is_err() {
            sending.abort();
            tracing::warn!("the last traces were not taken within {within:?}");
        }
        self.tally.counts()
    }
}

impl Tally {
    fn counts(&self) -> Counts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Counts { sent: count(&self.sent), dropped: count(&self.dropped), failed: count(&self.failed) }
    }
}

/// What this server says of itself: `OTEL_RESOURCE_ATTRIBUTES`, and its name.
fn resource(settings: &Settings) -> Resource {
    let builder = || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let found = builder().build();
    let is_named = found
        .get(&Key::from_static_str("service.name"))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    match &settings.service_name {
        Some(name) => builder().with_service_name(name.clone()).build(),
        None if is_named => found,
        None => builder().with_service_name(SERVICE).build(),
    }
}

/// Where finished spans go. (The SDK's own batch processor tells nobody how many spans it has dropped, and exports from a
/// thread that cannot drive tokio's sockets.)
#[derive(Debug)]
struct Queue {
    queue: mpsc::Sender<SpanData>,
    tally: Arc<Tally>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `Traces` owns the task that sends, and its end.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

struct Sender {
    spans: mpsc::Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
    settings: Settings,
    tally: Arc<Tally>,
    complaint: Limit,
    /// Dropped spans that the log knows of.
    told_dropped: u64,
}

impl Sender {
    /// Sends until told to stop, and then what still waits.
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut is_stopped = false;
        while !is_stopped {
            let mut batch = Vec::new();
            let mut due = None;
            while batch.len() < POST && !is_stopped {
                let room = POST - batch.len();
                tokio::select! {
                    taken = self.spans.recv_many(&mut batch, room) => {
                        // Nobody is left to make spans.
                        is_stopped = taken == 0;
                        due.get_or_insert_with(|| Instant::now() + GATHER);
                    }
                    () = sleep_until(due) => break,
                    _ = &mut stopped => is_stopped = true,
                }
            }
            self.send(batch).await;
        }
        self.spans.close();
        loop {
            let mut batch = Vec::new();
            if self.spans.recv_many(&mut batch, POST).await == 0 {
                return;
            }
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        if spans == 0 {
            return;
        }
        let message =
            ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(batch, &self.resource) };
        let (lost, why) = match post(&self.settings, message.encode_to_vec()).await {
            Ok(answer) => {
                // A collector may answer with nothing at all, or with something else than it should: it took them.
                let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
                let partial = answer.partial_success.unwrap_or_default();
                (u64::try_from(partial.rejected_spans).unwrap_or(0).min(spans), partial.error_message)
            }
            Err(error) => (spans, error.to_string()),
        };
        self.tally.sent.fetch_add(spans - lost, Ordering::Relaxed);
        self.tally.failed.fetch_add(lost, Ordering::Relaxed);
        self.complain(lost, &why);
    }

    /// Says that spans were lost, if any were and it is time to say so.
    fn complain(&mut self, lost: u64, why: &str) {
        let Counts { sent, dropped, failed } = self.tally.counts();
        if (lost == 0 && dropped == self.told_dropped) || self.complaint.pass(Instant::now()).is_none() {
            return;
        }
        self.told_dropped = dropped;
        let (endpoint, why) = (&self.settings.endpoint, if lost == 0 { "it takes them too slowly" } else { why });
        tracing::warn!(%endpoint, sent, failed, dropped, "the collector loses spans, and no request: {why}");
    }
}

/// Completes at `due`, or never where there is none.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
