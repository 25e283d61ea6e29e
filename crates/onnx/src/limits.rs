//! What one run may take: iterations, memory for values whose size values decide, and time.
//!
//! A body bounds its shapes, and with them most of what is computed of it. A number in it bounds nothing: `Range` or `Tile` makes as
//! much of it as it says, and a loop doubles what it carries as often as it says. Which values are of such a size is read from the graph
//! when it is loaded ([`Influence::sizes`](super::influence::Influence::sizes)). Before one of them is computed, its memory is reserved.
//!
//! The run of a thread is found by the thread: what asks for memory is far down, in functions that know shapes alone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::plan::Spent;
use super::value::OpError;
use uncork_model::quote::Quoted;
use uncork_model::runner::RunnerError;

/// Most iterations that all loops of one run take together, those of nested loops counted each time. A trip count can come
/// with a request, and without a bound it would hold a runner for ever. Longer than any sequence that is served; a small
/// body takes microseconds, so a run that exhausts it is over within seconds.
const MAX_ITERATIONS: u32 = 1 << 17;

/// What one run may do: how many iterations are left to it, and whether it is only a rehearsal.
pub(super) struct Budget {
    pub(super) iterations: Cell<u32>,
    pub(super) rehearsal: bool,
    /// What the nodes that have run took, if somebody wants to know.
    pub(super) spent: Option<RefCell<Vec<Spent>>>,
    /// Most bytes that values have had at one time, if somebody wants to know.
    pub(super) most: Option<Cell<usize>>,
}

impl Budget {
    pub(super) fn full() -> Budget {
        Budget { iterations: Cell::new(MAX_ITERATIONS), rehearsal: false, spent: None, most: None }
    }

    pub(super) fn rehearsal() -> Budget {
        Budget { rehearsal: true, ..Budget::full() }
    }

    /// Whether the inputs are made up, to try the graph or to time it. What a model knows by name alone, such as a category,
    /// nobody can make up: in a rehearsal an unknown one is not refused.
    pub(super) fn rehearses(&self) -> bool {
        self.rehearsal
    }

    /// Takes one iteration.
    pub(super) fn spend(&self) -> Result<(), OpError> {
        let left = self.iterations.get().checked_sub(1);
        self.iterations.set(
            left.ok_or_else(|| OpError(format!("its loops take more than {MAX_ITERATIONS} iterations in one run")))?,
        );
        Ok(())
    }
}

/// Most bytes of an element. What is computed on the way may be wider than the result, so it is counted with these for all.
const ELEMENT: usize = 8;

/// Bytes that all runs of the process share. Unit tests reach the end of fewer sooner.
pub(super) static POOL: Pool = Pool::new(if cfg!(test) { 64 << 20 } else { 512 << 20 });

/// Bytes that runs take of, beyond what each has of its own.
pub(super) struct Pool {
    most: usize,
    taken: AtomicUsize,
}

impl Pool {
    const fn new(most: usize) -> Pool {
        Pool { most, taken: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn free(&self) -> usize {
        self.most.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
}

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

struct Run {
    pool: &'static Pool,
    /// Bytes that it may have without taking any of the pool.
    own: usize,
    /// Bytes that it has taken of the pool.
    taken: usize,
    /// Bytes of the values that count and are there now.
    held: usize,
    /// Whether what is computed now is of a size that values decide.
    counts: bool,
    /// When nobody waits for it any more.
    end: Option<(Instant, Duration)>,
    refusal: Option<(Refusal, String)>,
}

/// Why a run was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// It alone would take more than there is.
    Beyond(String),
    /// Others have taken what it needs.
    Busy(String),
    Late(String),
}

impl Run {
    /// Sees to it that it may have so many bytes.
    fn reserve(&mut self, bytes: usize) -> Result<(), OpError> {
        let wanted = bytes.saturating_sub(self.own);
        if wanted <= self.taken || self.pool.take(wanted - self.taken) {
            self.taken = self.taken.max(wanted);
            return Ok(());
        }
        let bound = self.own.saturating_add(self.pool.most);
        let takes = format!("its result would bring what this run computes to {bytes} bytes");
        let refusal = if bytes > bound {
            Refusal::Beyond(format!(
                "{takes}, and values that a request makes so large by its numbers may have {bound}: send smaller numbers, or \
                 fewer rows at a time"
            ))
        } else {
            let free = self.pool.free();
            Refusal::Busy(format!("{takes}, and other runs leave {free} of the {} that they share", self.pool.most))
        };
        self.refuse(refusal)
    }

    fn refuse(&mut self, refusal: Refusal) -> Result<(), OpError> {
        let (Refusal::Beyond(why) | Refusal::Busy(why) | Refusal::Late(why)) = &refusal;
        let error = OpError(why.clone());
        self.refusal = Some((refusal, String::new()));
        Err(error)
    }
}

/// A run on this thread, until it is dropped.
pub(super) struct Limited(());

/// Begins a run on this thread, which may have `own` bytes of values whose size values decide, and beyond that what the pool has. It is
/// ended where it takes longer than `most`.
pub(super) fn begin(pool: &'static Pool, own: usize, most: Option<Duration>) -> Limited {
    let end = most.and_then(|most| Some((Instant::now().checked_add(most)?, most)));
    let run = Run { pool, own, taken: 0, held: 0, counts: false, end, refusal: None };
    RUN.with_borrow_mut(|slot| *slot = Some(run));
    Limited(())
}

impl Limited {
    /// Why it was ended, if it was.
    pub(super) fn refusal(&self) -> Option<RunnerError> {
        let (refusal, operator) = RUN.with_borrow(|run| run.as_ref().and_then(|run| run.refusal.clone()))?;
        let place = format!("operator {}", Quoted(&operator));
        Some(match refusal {
            Refusal::Beyond(why) => RunnerError::Input(format!("{place}: {why}")),
            Refusal::Busy(why) => RunnerError::Busy(format!("{place}: {why}")),
            Refusal::Late(why) => RunnerError::Failed(format!("{place}: {why}")),
        })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Some(run) = RUN.take() {
            run.pool.give(run.taken);
        }
    }
}

fn with<T>(look: impl FnOnce(&mut Run) -> Result<T, OpError>) -> Result<Option<T>, OpError> {
    RUN.with_borrow_mut(|run| run.as_mut().map(look).transpose())
}

/// A step of a run, while it is computed.
pub(super) struct Step {
    before: bool,
}

/// Begins a step; `counts`: values decide the size of its results.
pub(super) fn step(counts: bool) -> Result<Step, OpError> {
    let begin = |run: &mut Run| {
        if let Some((end, most)) = run.end
            && Instant::now() > end
        {
            run.refuse(Refusal::Late(format!("the run was given up, which took more than {most:?}")))?;
        }
        Ok(std::mem::replace(&mut run.counts, counts))
    };
    Ok(Step { before: with(begin)?.unwrap_or(false) })
}

impl Drop for Step {
    fn drop(&mut self) {
        RUN.with_borrow_mut(|run| run.iter_mut().for_each(|run| run.counts = self.before));
    }
}

/// Says which operator it was that a run was ended at: the innermost is told first.
pub(super) fn blame(operator: &str) {
    RUN.with_borrow_mut(|run| {
        let refusal = run.as_mut().and_then(|run| run.refusal.as_mut());
        refusal.into_iter().filter(|(_, name)| name.is_empty()).for_each(|(_, name)| operator.clone_into(name));
    });
}

/// Reserves memory for a tensor of so many elements that is about to be made, where values decide its size.
pub(super) fn ask(elements: usize) -> Result<(), OpError> {
    with(|run| if run.counts { run.reserve(run.held.saturating_add(elements.saturating_mul(ELEMENT))) } else { Ok(()) })
        .map(drop)
}

/// The same for one that is larger than what it is made of, whatever decides its size.
pub(super) fn ask_grown(elements: usize) -> Result<(), OpError> {
    with(|run| run.reserve(run.held.saturating_add(elements.saturating_mul(ELEMENT)))).map(drop)
}

/// Bytes of the values that count and are there now.
pub(super) fn held() -> usize {
    RUN.with_borrow(|run| run.as_ref().map_or(0, |run| run.held))
}

/// Says how many bytes the values that count have now. What was reserved beyond them is given back.
pub(super) fn hold(bytes: usize) -> Result<(), OpError> {
    with(|run| {
        run.held = bytes;
        run.reserve(bytes)?;
        let spare = run.taken - bytes.saturating_sub(run.own).min(run.taken);
        run.pool.give(spare);
        run.taken -= spare;
        Ok(())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::thread;

    use uncork_model::runner::Runner;
    use uncork_model::tensor::{Data, Tensor, Tensors};

    use super::super::OnnxModel;
    use super::super::author::Attribute::{Body, Int, Ints};
    use super::super::author::{Author, FREE};
    use super::*;

    const INT64: i32 = 7;
    const BOOL: i32 = 9;

    /// A model that adds to its input the sum of what `made` has made of it: of the number `n`, or of the list `l` with this number.
    fn sum_of(made: impl FnOnce(Author) -> Author) -> OnnxModel {
        let author = Author::new(17).int_input("x", &[FREE, 1]).output_of(INT64, "y", &[FREE, 1]);
        let author = author.ints("zero", &[], &[0]).ints("one", &[], &[1]).ints("1d", &[1], &[1]);
        let author = author.node("ReduceMax", &["x"], &["n"], &[("keepdims", Int(0))]);
        let author = made(author.node("Reshape", &["n", "1d"], &["l"], &[]));
        let author = author.node("ReduceSum", &["made"], &["sum"], &[("keepdims", Int(0))]);
        OnnxModel::load(&author.node("Add", &["x", "sum"], &["y"], &[]).finish()).unwrap()
    }

    fn request(model: &OnnxModel, number: i64) -> Tensors {
        model.signature().check(Tensors::one("x", Tensor::new(vec![1, 1], vec![number]).unwrap())).unwrap()
    }

    fn ask(model: &OnnxModel, number: i64) -> Result<i64, RunnerError> {
        let outputs = model.runner(NonZeroUsize::MIN).run(request(model, number))?;
        let Data::Int64(numbers) = outputs.get("y").unwrap().data().clone() else { panic!("{outputs:?}") };
        Ok(numbers[0])
    }

    /// A body that carries a list and hands `next` on, as `made` has made it of the list `a`.
    fn body(made: impl FnOnce(Author) -> Author) -> Author {
        let body = Author::new(17).int_input("i", &[]).input_of(BOOL, "go", &[]).int_input("a", &[FREE]);
        let body = body.output_of(BOOL, "on", &[]).output_of(INT64, "next", &[FREE]);
        made(body.node("Identity", &["go"], &["on"], &[]))
    }

    #[test]
    fn a_number_that_asks_for_more_memory_than_there_is_is_refused_before_it_has_any() {
        let models: [(&str, OnnxModel); 8] = [
            ("Range", sum_of(|author| author.node("Range", &["zero", "n", "one"], &["made"], &[]))),
            (
                "ConstantOfShape",
                sum_of(|author| {
                    author.node("ConstantOfShape", &["l"], &["f"], &[]).node(
                        "Cast",
                        &["f"],
                        &["made"],
                        &[("to", Int(7))],
                    )
                }),
            ),
            ("Tile", sum_of(|author| author.node("Tile", &["1d", "l"], &["made"], &[]))),
            ("Expand", sum_of(|author| author.node("Expand", &["one", "l"], &["made"], &[]))),
            (
                "OneHot",
                sum_of(|author| author.ints("two", &[2], &[0, 1]).node("OneHot", &["x", "n", "two"], &["made"], &[])),
            ),
            (
                "Pad",
                sum_of(|author| {
                    let author = author.ints("none", &[1], &[0]);
                    let author = author.node("Concat", &["none", "l"], &["ends"], &[("axis", Int(0))]);
                    author.node("Pad", &["1d", "ends"], &["made"], &[])
                }),
            ),
            (
                "Concat",
                sum_of(|author| {
                    let body = body(|body| body.node("Concat", &["a", "a"], &["next"], &[("axis", Int(0))]));
                    author.ints("most", &[], &[60]).node("Min", &["n", "most"], &["trips"], &[]).node(
                        "Loop",
                        &["trips", "", "1d"],
                        &["made"],
                        &[("body", Body(body.body()))],
                    )
                }),
            ),
            (
                "Loop",
                sum_of(|author| {
                    let body =
                        body(|body| body.node("Identity", &["a"], &["next"], &[]).output_of(INT64, "row", &[FREE]));
                    let body = body.ints("many", &[1], &[10_000]).node("Expand", &["i", "many"], &["row"], &[]);
                    author.node("Loop", &["n", "", "1d"], &["last", "made"], &[("body", Body(body.body()))])
                }),
            ),
        ];
        for (operator, model) in models {
            assert!(ask(&model, 3).is_ok(), "{operator}");
            let refusal = ask(&model, 260_000_000).unwrap_err();
            let RunnerError::Input(text) = &refusal else { panic!("{operator}: {refusal:?}") };
            assert!(text.starts_with(&format!("operator '{operator}': its result would bring")), "{text}");
            assert!(text.contains("send smaller numbers"), "{text}");
        }
    }

    #[test]
    fn a_model_whose_lengths_are_floats_can_refuse_rows() {
        let author = Author::new(17).input("x", &[FREE, 1]).output("y", &[FREE, 1]);
        let author = author.floats("zero", &[], &[0.0]).floats("one", &[], &[1.0]);
        let fixed = author.clone().node("Add", &["x", "one"], &["y"], &[]);
        let author = author.node("ReduceMax", &["x"], &["n"], &[("keepdims", Int(0))]);
        let author = author.node("Range", &["zero", "n", "one"], &["made"], &[]);
        let author = author.node("ReduceSum", &["made"], &["sum"], &[("keepdims", Int(0))]);
        let grown = author.node("Add", &["x", "sum"], &["y"], &[]);
        for (author, may_refuse) in [(fixed, false), (grown, true)] {
            let runner = OnnxModel::load(&author.finish()).unwrap().runner(NonZeroUsize::MIN);
            assert_eq!(runner.may_refuse(), may_refuse);
        }
    }

    #[test]
    fn what_grows_by_a_product_of_lengths_is_bounded_as_well() {
        let author = Author::new(17).input("x", &[FREE, FREE]).output("y", &[FREE, FREE]).ints("last", &[1], &[2]);
        let author = author.ints("middle", &[1], &[1]).node("Unsqueeze", &["x", "last"], &["column"], &[]);
        let author = author.node("Unsqueeze", &["x", "middle"], &["line"], &[]);
        let author = author.node("Mul", &["column", "line"], &["all"], &[]);
        let author = author.node("ReduceMax", &["all"], &["y"], &[("axes", Ints(&[2])), ("keepdims", Int(0))]);
        let mut runner = OnnxModel::load(&author.finish()).unwrap().runner(NonZeroUsize::MIN);
        let mut ask = |n| runner.run(Tensors::one("x", Tensor::new(vec![1, n], vec![1f32; n]).unwrap())).map(drop);
        assert_eq!(ask(100), Ok(()));
        let text = ask(12_000).unwrap_err().to_string();
        assert!(text.starts_with("operator 'Mul': its result would bring what this run computes to"), "{text}");
    }

    #[test]
    fn runs_share_what_goes_beyond_their_own_and_give_it_back() {
        static SHARED: Pool = Pool::new(1000);
        let other = |bytes| {
            let run = move || {
                let run = begin(&SHARED, 0, None);
                let refused = hold(bytes).is_err();
                blame("Inner");
                blame("Outer");
                (refused, run.refusal())
            };
            thread::scope(|threads| threads.spawn(run).join()).unwrap()
        };
        let run = begin(&SHARED, 500, None);
        hold(500).unwrap();
        assert_eq!(SHARED.free(), 1000);
        hold(1200).unwrap();
        assert_eq!(SHARED.free(), 300);
        assert_eq!(other(300), (false, None));
        let busy = "operator 'Inner': its result would bring what this run computes to 301 bytes, and other runs leave 300 of the 1000 \
                    that they share";
        assert_eq!(other(301), (true, Some(RunnerError::Busy(busy.into()))));
        assert!(matches!(other(1001), (true, Some(RunnerError::Input(text))) if text.contains("may have 1000: send")));
        // Only what values decide asks for memory before it is made, and with the widest elements.
        assert_eq!(ask_for(false, 1000), Ok(()));
        assert!(ask_for(true, 38).is_err());
        assert_eq!(ask_for(true, 37), Ok(()));
        hold(100).unwrap();
        assert_eq!(SHARED.free(), 1000);
        hold(1500).unwrap();
        drop(run);
        assert_eq!((SHARED.free(), hold(usize::MAX)), (1000, Ok(())), "no run, no limit");
    }

    fn ask_for(counts: bool, elements: usize) -> Result<(), OpError> {
        let _step = step(counts)?;
        super::ask(elements)
    }

    #[test]
    fn a_run_that_nobody_waits_for_ends_at_its_next_step() {
        let model = sum_of(|author| {
            let body = body(|body| body.node("Identity", &["a"], &["next"], &[]));
            author.node("Loop", &["n", "", "1d"], &["made"], &[("body", Body(body.body()))])
        });
        let request = request(&model, 100);
        let given = |most| model.runner(NonZeroUsize::MIN).giving_up_after(most).run(request.clone());
        assert!(given(Duration::from_secs(3600)).is_ok());
        let text = given(Duration::ZERO).unwrap_err();
        assert!(matches!(&text, RunnerError::Failed(text) if text.contains("the run was given up")), "{text:?}");
    }
}
