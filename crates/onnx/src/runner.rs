//! Runs a loaded model on threads of its own.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use burn_dispatch::DispatchDevice;

use super::Loaded;
use super::fence::fenced;
use super::limits;
use crate::seat::Seat;
use crate::spread::Spread;
use uncork_model::quote::Quoted;
use uncork_model::runner::{Rows, Runner, RunnerError, Signature, TensorSpec};
use uncork_model::tensor::{Data, DataType, Tensor, TensorError, Tensors};

/// Runs of a batch where its best way is looked for. The first makes the buffers, and of the others the median counts.
const FEWEST_RUNS: usize = 2;
const MOST_RUNS: usize = 8;
/// No more than [`FEWEST_RUNS`] where they took so long.
const LONG: Duration = Duration::from_millis(20);
/// Who takes so long with all threads is not tried with fewer: nobody waits for minutes until a server is ready.
const SLOW: Duration = Duration::from_millis(500);

/// One executor of an [`OnnxModel`](super::OnnxModel). The weights are shared with all others.
#[derive(Debug)]
pub struct OnnxRunner {
    model: Arc<Loaded>,
    seat: Seat,
    /// The thread that serves.
    home: Option<ThreadId>,
    /// The thread that warmed it up.
    warmed_by: Option<ThreadId>,
    /// How long a run may take.
    most: Option<Duration>,
}

impl OnnxRunner {
    pub(super) fn new(model: Arc<Loaded>, threads: NonZeroUsize) -> OnnxRunner {
        OnnxRunner { model, seat: Seat::new(threads), home: None, warmed_by: None, most: None }
    }

    /// Ends a run at its next step once it has taken so long: nobody waits for it any more. Rehearsals are left to run.
    #[must_use]
    pub fn giving_up_after(mut self, most: Duration) -> OnnxRunner {
        self.most = Some(most);
        self
    }
}

impl Runner for OnnxRunner {
    fn signature(&self) -> &Signature {
        &self.model.signature
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        if !self.is_at_home() {
            self.settle();
        }
        let most = self.most;
        self.on_seat(batch, Way::Served { most })
    }

    /// A model is warmed up by another thread than that which then serves it, and which finds the buffers. There the first batch of a size
    /// is run in all ways that threads can share it in, to find the best. Who serves has no time for that.
    fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let here = thread::current().id();
        if !self.is_at_home() && self.warmed_by.is_some_and(|thread| thread != here) {
            self.settle();
        }
        if self.is_at_home() {
            return self.on_seat(batch, Way::Rehearsed);
        }
        self.warmed_by = Some(here);
        let model = Arc::clone(&self.model);
        self.seat.alone(false, || model.left.keep())?;
        let outputs = self.measured(batch);
        self.seat.alone(false, || model.left.leave())?;
        outputs
    }

    /// Operators refuse indices that point nowhere and lengths that do not go together. Floats in a fixed shape are all alike
    /// to them, unless a number stands for a category, or becomes an index or a length.
    fn may_refuse(&self) -> bool {
        let is_free = |spec: &TensorSpec| spec.dims.contains(&None);
        let is_float = |spec: &TensorSpec| {
            matches!(spec.datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
        };
        self.model.graph.outline.picky
            || !self.model.graph.influence.sizes.is_empty()
            || self.model.signature.inputs.iter().any(|spec| is_free(spec) || !is_float(spec))
    }

    fn takes_whole_requests(&self) -> bool {
        true
    }

    /// Values may decide how long an output is, and lengths of inputs how many axes it has.
    fn may_change_form(&self) -> bool {
        self.model.is_unsteady || self.model.signature.outputs.iter().any(|spec| spec.dims.contains(&None))
    }
}

/// How a graph is run.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// On callers' rows, within limits.
    Served {
        /// How long that may take.
        most: Option<Duration>,
    },
    /// On rows that were made up.
    Rehearsed,
}

impl OnnxRunner {
    fn is_at_home(&self) -> bool {
        self.home == Some(thread::current().id())
    }

    /// From here on the calling thread is the one that serves.
    fn settle(&mut self) {
        self.seat.let_go();
        self.model.left.keep();
        self.home = Some(thread::current().id());
    }

    /// Runs a batch on the runner's own threads.
    fn on_seat(&mut self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let spread = match self.seat.threads() {
            NonZeroUsize::MIN => Spread::One,
            threads if self.model.is_local() => self.model.spreads.of(threads, batch.rows(), self.model.comes_apart()),
            _ => Spread::Operators,
        };
        self.spread(batch, way, spread)
    }

    /// Runs a batch, spread over threads as it says.
    fn spread(&mut self, batch: Tensors, way: Way, spread: Spread) -> Result<Tensors, RunnerError> {
        let (model, stays) = (Arc::clone(&self.model), self.is_at_home());
        let run = move |rows| fenced(|| model.run(rows, way)).unwrap_or_else(|e| Err(RunnerError::Failed(e.0)));
        match spread {
            Spread::One => self.seat.alone(stays, || run(batch))?,
            Spread::Operators => self.seat.all(|| run(batch))?,
            Spread::Rows(threads) => {
                let sizes = Spread::sizes(batch.rows(), threads);
                let parts = batch.split(&sizes).map_err(broken)?;
                let answers = self.seat.each(stays, parts, run)?;
                joined(answers.into_iter().collect::<Result<_, _>>()?)
            }
        }
    }

    /// Runs a batch that was made up: in all ways, where it is the first of its size.
    fn measured(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        let (threads, rows) = (self.seat.threads(), batch.rows());
        let ways = match threads > NonZeroUsize::MIN && self.model.is_local() {
            true => self.model.spreads.candidates(threads, rows, self.model.comes_apart()),
            false => Vec::new(),
        };
        if !ways.is_empty() {
            let mut times = Vec::with_capacity(ways.len());
            for way in ways.into_iter().rev() {
                let (mut taken, begin) = (Vec::with_capacity(MOST_RUNS), Instant::now());
                for run in 0..MOST_RUNS {
                    if run >= FEWEST_RUNS && begin.elapsed() > LONG {
                        break;
                    }
                    let (batch, begin) = (batch.clone(), Instant::now());
                    self.spread(batch, Way::Rehearsed, way)?;
                    taken.push(begin.elapsed());
                }
                let timed = &mut taken[1..];
                timed.sort_unstable();
                let time = timed[timed.len() / 2];
                times.push((way, time));
                if time > SLOW {
                    break;
                }
            }
            times.reverse();
            tracing::debug!(?times, rows, threads, "the ways to run a batch");
            self.model.spreads.measured(threads, rows, times);
        }
        self.on_seat(batch, Way::Rehearsed)
    }
}

impl Drop for OnnxRunner {
    fn drop(&mut self) {
        if self.is_at_home() {
            self.model.left.leave();
        }
    }
}

impl Loaded {
    fn run(&self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let sizes = self.runs(&batch);
        if sizes.len() <= 1 {
            return self.run_whole(batch, way);
        }
        let parts = batch.split(&sizes).map_err(broken)?;
        let run = |part| self.run_whole(part, way);
        joined(parts.into_iter().map(run).collect::<Result<_, _>>()?)
    }

    /// Whether it is computed on the processor's threads.
    fn is_local(&self) -> bool {
        matches!(self.graph.plan.device(), DispatchDevice::Flex(_))
    }

    /// Whether the rows of a batch may be run in several parts: the parts' answers are as long as each other.
    fn comes_apart(&self) -> bool {
        !self.is_unsteady && self.graph.influence.sizes.is_empty()
    }

    /// How many rows each run takes: those side by side for which what all rows of a run share is the same.
    fn runs(&self, batch: &Tensors) -> Vec<usize> {
        let shared: Vec<&Tensor> = batch
            .iter()
            .filter(|(name, _)| self.signature.inputs.iter().any(|s| s.name == **name && s.rows == Rows::Shared))
            .map(|(_, tensor)| tensor)
            .collect();
        let rows = batch.rows();
        if rows <= 1 || (self.alone.is_none() && shared.is_empty()) {
            return vec![rows];
        }
        let starts = |&at: &usize| self.alone.is_some() || shared.iter().any(|t| !is_same(&t.row(at), &t.row(at - 1)));
        let starts: Vec<usize> = [0].into_iter().chain((1..rows).filter(starts)).chain([rows]).collect();
        starts.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }

    /// What so many rows may have of values whose size values decide, before they take of what all runs share: twice what a row had that was
    /// tried, since a tensor counts with the widest elements while it is made.
    fn own_bytes(&self, rows: usize) -> usize {
        self.row_bytes.saturating_mul(rows).saturating_mul(2)
    }

    fn run_whole(&self, batch: Tensors, way: Way) -> Result<Tensors, RunnerError> {
        let specs = &self.signature.inputs;
        let is_whole = self.signature.is_whole(&batch);
        let mut given: Vec<_> = batch.into_entries().into_iter().map(Some).collect();
        if given.len() != specs.len() {
            return Err(RunnerError::Failed(format!("{} inputs where the model takes {}", given.len(), specs.len())));
        }
        let mut values = Vec::with_capacity(specs.len());
        let mut rows = 1;
        for spec in specs {
            // A checked batch is in the model's order already; the search then ends at once.
            let found = given.iter_mut().find(|g| g.as_ref().is_some_and(|(name, _)| *name == spec.name));
            let Some((_, tensor)) = found.and_then(Option::take) else {
                return Err(RunnerError::Failed(format!("input {} is missing", Quoted(&spec.name))));
            };
            let axes = spec.dims.len() + 1 + usize::from(is_whole && spec.rows != Rows::Shared);
            if tensor.data().datatype() != spec.datatype || tensor.shape().len() != axes {
                return Err(RunnerError::Failed(format!("input {} has another type or rank", Quoted(&spec.name))));
            }
            rows = tensor.rows();
            values.push(if is_whole { tensor.first_row() } else { spec.own_shape(tensor) });
        }
        let (outputs, refusal) = match way {
            Way::Served { most } => {
                let limited = limits::begin(&limits::POOL, self.own_bytes(rows), most);
                let outputs = self.graph.compute(values);
                (outputs, limited.refusal())
            }
            Way::Rehearsed => (self.graph.rehearse(values), None),
        };
        let outputs = outputs.map_err(|failure| {
            if let Some(refusal) = refusal {
                return refusal;
            }
            if failure.place.is_none() {
                return RunnerError::Failed(failure.reason);
            }
            // It has run on rows of zeros when it was loaded, so what an operator refuses now is in these rows.
            tracing::debug!(%failure, "rows refused");
            RunnerError::Input(failure.reason)
        })?;
        let named = self.signature.outputs.iter().zip(outputs).map(|(spec, tensor)| {
            let tensor = match spec.rows {
                _ if is_whole => tensor.repeated(1)?,
                Rows::Axis(axis) if axis < tensor.shape().len() => tensor.axis_to_front(axis),
                Rows::Axis(_) => tensor,
                Rows::Shared => tensor.repeated(rows)?,
            };
            Ok((Arc::clone(&spec.name), tensor))
        });
        Tensors::new(named.collect::<Result<_, TensorError>>().map_err(broken)?).map_err(broken)
    }
}

/// The answers to the parts of a batch, one behind the other.
fn joined(answers: Vec<Tensors>) -> Result<Tensors, RunnerError> {
    if answers.iter().any(|answer| !answer.joins_with(&answers[0])) {
        return Err(RunnerError::Input(
            "the values of its rows make answers of different lengths, which are no tensor together: send them in several requests"
                .into(),
        ));
    }
    Tensors::join(answers).map_err(broken)
}

fn broken(error: TensorError) -> RunnerError {
    RunnerError::Failed(error.to_string())
}

/// Whether two tensors are the same to the bit: 1 / 0 and 1 / -0 are not.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    match (a.data(), b.data()) {
        (Data::Fp16(a), Data::Fp16(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
        (Data::Bf16(a), Data::Bf16(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
        (Data::Fp32(a), Data::Fp32(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
        (Data::Fp64(a), Data::Fp64(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnnxModel;
    use crate::author::{Author, FREE};
    use uncork_model::tensor::Data;

    const THREE: NonZeroUsize = NonZeroUsize::new(3).unwrap();
    const ROWS: usize = 7;
    const WAYS: [Spread; 4] = [Spread::One, Spread::Rows(2), Spread::Rows(3), Spread::Operators];
    const SERVED: Way = Way::Served { most: None };

    fn model(file: &str) -> OnnxModel {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(file);
        OnnxModel::open(&path).unwrap()
    }

    /// Rows that differ from each other.
    fn rows(model: &OnnxModel) -> Tensors {
        let mut rows = model.example().clone().resize_rows(ROWS).unwrap().into_entries();
        for (_, tensor) in &mut rows {
            if let Data::Fp32(numbers) = tensor.data().clone() {
                let numbers: Vec<f32> = (0..numbers.len()).map(|i| ((i * 7919) % 1009) as f32 / 504.0 - 1.0).collect();
                *tensor = Tensor::new(tensor.shape().to_vec(), numbers).unwrap();
            }
        }
        Tensors::new(rows).unwrap()
    }

    #[test]
    fn a_batch_is_answered_alike_however_threads_share_it() {
        // The rows of the last one are run one at a time.
        for file in ["mlp.onnx", "lenet.onnx", "two_inputs.onnx", "fixed_batch.onnx"] {
            let model = model(file);
            let (batch, mut runner) = (rows(&model), model.runner(THREE));
            let mut answers = WAYS.map(|way| runner.spread(batch.clone(), SERVED, way).unwrap().into_entries());
            let (expected, others) = answers.split_first_mut().unwrap();
            for other in others {
                for ((name, expected), (_, other)) in expected.iter().zip(other) {
                    assert_eq!(expected.shape(), other.shape(), "{file}: {name}");
                    let (Data::Fp32(expected), Data::Fp32(other)) = (expected.data(), other.data()) else {
                        panic!("{file}")
                    };
                    let far = expected.iter().zip(other).any(|(a, b)| (a - b).abs() > 1e-5 * (1.0 + a.abs()));
                    assert!(!far, "{file}: {name}");
                }
            }
        }
    }

    #[test]
    fn the_first_batch_of_a_size_finds_out_how_to_run_such_batches() {
        let model = model("mlp.onnx");
        let batch = rows(&model);
        std::thread::scope(|threads| {
            // Another thread than that which serves.
            let warm_up = threads.spawn(|| model.runner(THREE).rehearse(batch.clone()).map(drop));
            assert_eq!(warm_up.join().unwrap(), Ok(()));
        });
        // A size that was not tried yet is not tried by the thread that serves: callers would wait.
        let mut served = model.runner(THREE);
        std::thread::scope(|threads| {
            let warm_up = threads.spawn(|| served.rehearse(model.example().clone()).map(drop));
            assert_eq!(warm_up.join().unwrap(), Ok(()));
        });
        assert_eq!(served.rehearse(batch.clone().resize_rows(2).unwrap()).map(|answer| answer.rows()), Ok(2));
        assert!(!model.0.spreads.candidates(THREE, 2, true).is_empty());
        let (loaded, mut runner) = (&model.0, model.runner(THREE));
        assert!(loaded.spreads.candidates(THREE, ROWS, true).is_empty(), "measured for all runners");
        assert_eq!(runner.run(batch).unwrap().rows(), ROWS);
    }

    #[test]
    fn a_row_that_is_refused_is_refused_in_every_way() {
        let author =
            Author::new(17).int_input("x", &[FREE]).output("y", &[FREE]).floats("four", &[4], &[0.0, 1.0, 2.0, 3.0]);
        let model = OnnxModel::load(&author.node("Gather", &["four", "x"], &["y"], &[]).finish()).unwrap();
        let mut runner = model.runner(THREE);
        for way in WAYS {
            let mut ask = |last: i64| {
                let batch = Tensors::one("x", Tensor::new(vec![ROWS], vec![0, 1, 2, 3, 0, 1, last]).unwrap());
                runner.spread(batch, SERVED, way)
            };
            let expected =
                Tensors::one("y", Tensor::new(vec![ROWS], vec![0.0f32, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]).unwrap());
            assert_eq!(ask(2), Ok(expected.clone()));
            assert!(matches!(ask(4), Err(RunnerError::Input(_))), "{way:?}");
            assert_eq!(ask(2), Ok(expected), "{way:?}: and the next batch is answered");
        }
    }
}
