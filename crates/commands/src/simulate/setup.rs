//! The flags about the server: the runners' speed and the two caps.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::load::Load;
use super::plan::Subject;
use super::values;
use uncork_core::estimator::Instant;
use uncork_core::policy::BatchSizes;
use uncork_sim::Service;

/// The flags about the server.
#[derive(Debug, clap::Args)]
#[group(id = "server", conflicts_with = "scenario")]
pub(super) struct Flags {
    /// Time that a batch takes however small it is
    #[arg(long, value_name = "A", value_parser = values::base(), allow_hyphen_values = true)]
    #[arg(required_unless_present = "scenario")]
    base_ms: Option<Duration>,

    /// Time that each of its rows adds
    #[arg(long, value_name = "B", value_parser = values::per_row(), allow_hyphen_values = true)]
    #[arg(required_unless_present = "scenario")]
    per_row_ms: Option<Duration>,

    /// Time that the server itself takes around each batch
    ///
    /// Handing a batch over, taking it back, and writing answers.
    #[arg(long, value_name = "S", default_value = values::SERVER_MS, allow_hyphen_values = true)]
    #[arg(value_parser = values::base())]
    pub(super) server_ms: Duration,

    /// σ of log-normal noise on batch times
    #[arg(long, value_name = "SIGMA", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = values::up_to_one())]
    jitter: f64,

    /// A share of the batches takes so many times as long, as in 0.01:5
    #[arg(long, value_name = "SHARE:FACTOR", allow_hyphen_values = true)]
    #[arg(value_parser = values::with_factor(values::up_to_one()))]
    stragglers: Option<(f64, f64)>,

    /// From then on batches take so many times as long, as in 30s:2; may be given several times
    ///
    /// The factor is that of the times given, not of those before: 10s:5 and 20s:1 is a step and back. With --arrivals, AT
    /// counts from the first of them.
    #[arg(long, value_name = "AT:FACTOR", allow_hyphen_values = true)]
    #[arg(value_parser = values::with_factor(values::time(values::AT)))]
    drift: Vec<(Duration, f64)>,

    /// With --cold: the first batch takes so many times as long
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_hyphen_values = true)]
    #[arg(value_parser = values::number(values::FACTOR))]
    pub(super) first_batch: f64,

    /// Batches are padded to the next of these sizes, as in 1,2,4,8
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(value_parser = values::batch())]
    allowed_batch_sizes: Vec<usize>,

    /// Cap on the time from arrival to answer
    #[arg(long, value_name = "D", value_parser = values::max_latency(), allow_hyphen_values = true)]
    #[arg(required_unless_present = "scenario")]
    max_latency_ms: Option<Duration>,

    /// Cap on the rows of one batch
    #[arg(long, value_name = "N", value_parser = values::batch(), allow_hyphen_values = true)]
    #[arg(required_unless_present = "scenario")]
    max_batch_size: Option<usize>,

    /// Batches that may run at once
    #[arg(long, value_name = "M", default_value = "1", allow_hyphen_values = true)]
    #[arg(value_parser = values::runners())]
    pub(super) runners: usize,
}

const ASKED_FOR: &str = "clap asks for it wherever there is no --scenario";

impl Flags {
    /// The two caps.
    pub(super) fn caps(&self) -> (Duration, usize) {
        (self.max_latency_ms.expect(ASKED_FOR), self.max_batch_size.expect(ASKED_FOR))
    }

    /// The model that they describe, with this load.
    ///
    /// # Errors
    /// What is wrong with them taken together.
    pub(super) fn subject(self, load: Load) -> Result<Subject, String> {
        let (base, per_row) = (self.base_ms.expect(ASKED_FOR), self.per_row_ms.expect(ASKED_FOR));
        let (max_latency, max_batch) = self.caps();
        if (base + per_row).is_zero() {
            return Err("--base-ms 0 --per-row-ms 0: a batch must take some time".into());
        }
        let sizes = sizes(self.allowed_batch_sizes, max_batch, ["--allowed-batch-sizes", "--max-batch-size"])?;
        let mut changes = self.drift;
        changes.sort_by_key(|(at, _)| *at);
        let (straggle_share, straggle_factor) = self.stragglers.unwrap_or((0.0, 1.0));
        let service = Service {
            jitter: self.jitter,
            straggle_share,
            straggle_factor,
            changes: changes.into_iter().map(|(at, factor)| (Instant::EPOCH + at, factor)).collect(),
            first_factor: self.first_batch,
            sizes,
            ..Service::affine(base + self.server_ms, per_row)
        };
        let (name, weight) = (String::new(), NonZeroUsize::MIN);
        Ok(Subject { name, service, max_latency, max_batch, tried: None, weight, load })
    }
}

/// The sizes to which batches are padded; `keys` are the names of that setting and of the cap.
///
/// # Errors
/// They do not rise, or do not reach the cap.
pub(super) fn sizes(given: Vec<usize>, max_batch: usize, keys: [&str; 2]) -> Result<BatchSizes, String> {
    let [key, cap_key] = keys;
    let sizes = BatchSizes::rising(given.clone()).ok_or_else(|| format!("{key} {given:?}: must rise"))?;
    match sizes.largest().filter(|largest| *largest < max_batch) {
        Some(largest) => Err(format!("{key}: the largest, {largest}, must not be below {cap_key} {max_batch}")),
        None => Ok(sizes),
    }
}
