//! Settings of a batcher beside its two caps, each with a default that serves.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::bounds::Bounds;
use super::desk::Desk;
use super::executor::{BatchError, Executor, Work};
use super::fence::FencedExecutor;
use super::observer::{Learned, Observer, Observers};
use super::pool::Pool;
use super::{Batcher, Caps, Shared, Weight};
use uncork_core::policy::{BatchSizes, Cork, Lane, Policy, kept_for_answering};

/// Rows that may wait unless said otherwise, or eight batches if that is more. The latency cap refuses long before on all
/// but the fastest models; this bounds memory.
const DEFAULT_QUEUE_ROWS: usize = 16_384;
/// Bytes that may wait unless said otherwise.
const DEFAULT_QUEUE_BYTES: usize = 256 << 20;

/// Builds a [`Batcher`].
#[must_use = "nothing runs until it is started"]
pub struct Builder<I, A> {
    caps: Caps,
    runners: usize,
    pool: Option<Pool<I, A>>,
    weight: NonZeroUsize,
    sizes: BatchSizes,
    max_queue_rows: usize,
    max_queue_bytes: usize,
    weigh: Box<dyn Fn(&I) -> Weight + Send + Sync>,
    policy: Box<dyn Policy>,
    observers: Observers,
    seen: Vec<(usize, Duration)>,
    tried: Option<usize>,
    stuck_after: Option<Duration>,
    waits_for_room: bool,
    answers: std::marker::PhantomData<fn() -> A>,
}

impl<I, A> std::fmt::Debug for Builder<I, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("caps", &self.caps).finish_non_exhaustive()
    }
}

impl<I: Send + 'static, A: Send + 'static> Builder<I, A> {
    /// One runner, one row an item, the policy [`Cork`], and nobody who hears of anything.
    pub fn new(caps: Caps) -> Builder<I, A> {
        let caps = Caps { max_batch: caps.max_batch.max(1), ..caps };
        Builder {
            caps,
            runners: 1,
            pool: None,
            weight: NonZeroUsize::MIN,
            sizes: BatchSizes::default(),
            max_queue_rows: DEFAULT_QUEUE_ROWS.max(caps.max_batch.saturating_mul(8)),
            max_queue_bytes: DEFAULT_QUEUE_BYTES,
            weigh: Box::new(|_| Weight { rows: 1, bytes: size_of::<I>() }),
            policy: Box::new(Cork),
            observers: Observers::default(),
            seen: Vec::new(),
            tried: None,
            stuck_after: None,
            waits_for_room: false,
            answers: std::marker::PhantomData,
        }
    }

    /// Batches that may run at once; 0 is taken as 1. More: a device that gains from it is used better; one that does not
    /// shares the same speed among smaller batches. Without effect in a shared [`pool`](Self::pool), which has its own.
    pub fn runners(self, runners: usize) -> Self {
        Builder { runners: runners.max(1), ..self }
    }

    /// Shares the runners of `pool` with the other batchers there, instead of having some of its own.
    pub fn pool(self, pool: &Pool<I, A>) -> Self {
        Builder { pool: Some(pool.clone()), ..self }
    }

    /// The part of the pool's runner time when its batchers want more than there is, in proportion to the others' weights;
    /// 1 unless said otherwise.
    pub fn weight(self, weight: NonZeroUsize) -> Self {
        Builder { weight, ..self }
    }

    /// The sizes that the executor runs. A batch of another size takes as long as one of the next, to which whoever runs it
    /// pads it; none has more rows than the largest.
    pub fn allowed_batch_sizes(self, sizes: BatchSizes) -> Self {
        let max_batch = sizes.largest().map_or(self.caps.max_batch, |largest| self.caps.max_batch.min(largest));
        Builder { sizes, caps: Caps { max_batch, ..self.caps }, ..self }
    }

    /// Most rows that wait; what comes beyond is refused at once. Lower bounds memory; the latency cap is what refuses
    /// long before on all but the fastest models.
    pub fn max_queue_rows(self, rows: usize) -> Self {
        Builder { max_queue_rows: rows, ..self }
    }

    /// Most bytes that wait, as [`weigh`](Self::weigh) counts them; what comes beyond is refused at once.
    pub fn max_queue_bytes(self, bytes: usize) -> Self {
        Builder { max_queue_bytes: bytes, ..self }
    }

    /// How many rows and bytes an item counts.
    pub fn weigh(self, weigh: impl Fn(&I) -> Weight + Send + Sync + 'static) -> Self {
        Builder { weigh: Box::new(weigh), ..self }
    }

    /// Another rule for releasing batches. It may not panic: that ends every batcher of the pool.
    pub fn policy(self, policy: impl Policy + 'static) -> Self {
        Builder { policy: Box::new(policy), ..self }
    }

    /// Who hears of what happens, beside those that were named before.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.add(observer);
        self
    }

    /// Batches timed beforehand, as rows and time, so that the first request already meets an estimate.
    pub fn seen(self, batches: Vec<(usize, Duration)>) -> Self {
        Builder { seen: batches, ..self }
    }

    /// Whoever runs the batches can [make rows up](Executor::rehearse), and has tried batches of up to `tried` rows. Larger
    /// ones are rehearsed while the pool is idle, and until then none is released; a request of more rows is to be split by
    /// [`Batcher::most_rows`], or it goes alone. Where the estimate says that everybody would be late, rows that are nobody's
    /// find out whether that is still so. Otherwise that is found out with a caller now and then, who may be answered late.
    pub fn rehearsing(self, tried: usize) -> Self {
        Builder { tried: Some(tried), ..self }
    }

    /// A batch that runs for so long is given up: its callers are told [`Error::Stuck`](crate::Error::Stuck), and the thread that
    /// runs it is left behind and replaced by a new one with a worker of its own. Four are left behind at most; beyond that the
    /// pool has a runner less. Without this, a batch may take for ever.
    pub fn giving_up_after(self, stuck_after: Duration) -> Self {
        Builder { stuck_after: Some(stuck_after), ..self }
    }

    /// Has an item wait for room in a full queue, in the order of arrival, instead of being refused at once; one that has found none
    /// when its time is over is refused then. For programs that would rather be slowed down than told to try again.
    ///
    /// Nobody makes room for another then: [callers](crate::Terms::caller) who are told apart share what is in the queue, but one who asks for very
    /// much has the others wait behind him for room. Where callers do not know each other, leave this out.
    pub fn waiting_for_room(self) -> Self {
        Builder { waits_for_room: true, ..self }
    }

    /// Starts a batcher over a function of a batch, called on a thread for each runner.
    ///
    /// # Errors
    /// If no thread can be started.
    ///
    /// # Panics
    /// As [`start`](Self::start) does.
    pub fn start_function(
        self,
        function: impl Fn(Vec<I>) -> Vec<A> + Send + Sync + 'static,
    ) -> std::io::Result<Batcher<I, A>> {
        let function = Arc::new(function);
        self.start_threads(move || {
            let function = Arc::clone(&function);
            Ok(Box::new(move |batch| Ok(function(batch).into())))
        })
    }

    /// Starts a batcher over the threads of its pool, one for each runner, each with a worker from `build`, which is called
    /// again after a worker has panicked.
    ///
    /// # Errors
    /// If no thread can be started.
    ///
    /// # Panics
    /// As [`start`](Self::start) does.
    pub fn start_threads<F>(mut self, build: F) -> std::io::Result<Batcher<I, A>>
    where
        F: Fn() -> Result<Box<dyn Work<I, A>>, BatchError> + Send + Sync + 'static,
    {
        let pool = self.pool.take().unwrap_or_else(|| Pool::new("own", self.runners));
        let workers = pool.threads()?.workers(build);
        Ok(self.pool(&pool).start(workers))
    }

    /// Starts a batcher over any executor.
    ///
    /// # Panics
    /// Without a [`pool`](Self::pool) to share: outside of a tokio runtime, and in one without time (`enable_time`).
    pub fn start(self, executor: impl Executor<I, A>) -> Batcher<I, A> {
        let pool = self.pool.unwrap_or_else(|| Pool::new("own", self.runners));
        let clock = pool.clock();
        let lane = Lane::new(self.policy, self.caps.max_batch).weighing(self.weight);
        let answering = kept_for_answering(self.caps.max_latency);
        let mut lane = lane.padding_to(self.sizes);
        if let Some(tried) = self.tried {
            lane = lane.rehearsing(tried, self.caps.max_latency - answering);
        }
        if let Some(stuck_after) = self.stuck_after {
            lane = lane.giving_up_after(stuck_after);
        }
        let observers = Arc::new(self.observers);
        for (rows, took) in self.seen {
            lane.seen(clock.now(), rows, took);
            observers.learned(clock.now(), &Learned { rows, took, fit: lane.fit().clone() });
        }
        let bounds = Bounds::new(self.max_queue_rows, self.max_queue_bytes, self.caps.max_latency);
        bounds.set_most_rows(self.tried.unwrap_or(usize::MAX).clamp(1, self.caps.max_batch));
        bounds.set_fit(lane.fit());
        let bounds = Arc::new(bounds);
        let desk = Desk {
            bounds: Arc::clone(&bounds),
            observers: Arc::clone(&observers),
            executor: FencedExecutor::new(executor),
            waiting: HashMap::new(),
            held: Weight { rows: 0, bytes: 0 },
            drained: Vec::new(),
            closing: false,
        };
        let (inbox, lane) = pool.open(lane, desk);
        let next_id = AtomicU64::new(0);
        Batcher {
            shared: Arc::new(Shared {
                inbox,
                lane,
                bounds,
                observers,
                weigh: self.weigh,
                next_id,
                clock,
                caps: self.caps,
                answering,
                runners: pool.runners(),
                waits_for_room: self.waits_for_room,
            }),
        }
    }
}
