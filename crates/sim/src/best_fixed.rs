//! The best setting of `fixed` for a load, found after the fact: what hand-tuning could have reached at most.

use std::cmp::Reverse;
use std::time::Duration;

use super::{Outcome, Scenario, Service, Source, run};
use uncork_core::policy::{Fixed, Policy};

/// Queue timeouts of the first grid, as shares of the longest that leaves a batch of the size its time. The last is as good
/// as none: the deadline comes first.
const TIMEOUTS: [f64; 6] = [1.0, 0.75, 0.5, 1.4, 2.0, 100.0];
/// Sizes of the first grid, as shares of the largest batch.
const SIZES: [f64; 7] = [1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.05];
/// Waits of the first grid, as shares of the latency cap.
const WAITS: [f64; 5] = [0.0, 0.02, 0.08, 0.2, 0.5];
/// How often the grid is refined around the best point; each time its steps are halved.
const REFINEMENTS: u32 = 4;

/// The wait, size and queue timeout with which [`Fixed`] answers the most requests on time, and among those with the
/// lowest mean latency, and what becomes of the load under them.
///
/// `scenario` puts a policy into the scenario in question, of one model; `source` makes its load, the same each time. The
/// search is deterministic: a coarse grid, then finer ones around its best point; about 200 runs. It knows the
/// whole load beforehand, which nobody who sets these numbers does.
pub fn best_fixed<S: Source>(
    scenario: impl Fn(Box<dyn Policy>) -> Scenario,
    source: impl Fn() -> S,
) -> Option<(Fixed, Outcome)> {
    let caps = scenario(Box::new(Fixed::EAGER));
    let model = caps.models.first()?;
    let mut search = Search {
        service: &model.service,
        max_latency: model.max_latency,
        max_batch: model.max_batch,
        run: |fixed: Fixed| run(scenario(Box::new(fixed)), &mut source()).into_iter().next(),
        tried: Vec::new(),
        best: None,
    };
    for timeout in TIMEOUTS {
        for size in SIZES {
            for wait in WAITS {
                search.visit(Point { timeout, size, wait });
            }
        }
    }
    let mut step = Point { timeout: 0.12, size: 0.06, wait: 0.04 };
    for _ in 0..REFINEMENTS {
        let center = search.best.as_ref()?.at;
        for timeout in [0.0, -step.timeout, step.timeout] {
            for size in [0.0, -step.size, step.size] {
                for wait in [0.0, -step.wait, step.wait] {
                    search.visit(Point {
                        timeout: center.timeout + timeout,
                        size: center.size + size,
                        wait: center.wait + wait,
                    });
                }
            }
        }
        step = Point { timeout: step.timeout / 2.0, size: step.size / 2.0, wait: step.wait / 2.0 };
    }
    search.best.map(|best| (best.fixed, best.outcome))
}

/// A setting, in the shares of the grids.
#[derive(Debug, Clone, Copy)]
struct Point {
    timeout: f64,
    size: f64,
    wait: f64,
}

struct Best {
    at: Point,
    fixed: Fixed,
    outcome: Outcome,
}

struct Search<'a, R> {
    service: &'a Service,
    max_latency: Duration,
    max_batch: usize,
    run: R,
    tried: Vec<Fixed>,
    best: Option<Best>,
}

impl<R: Fn(Fixed) -> Option<Outcome>> Search<'_, R> {
    fn visit(&mut self, at: Point) {
        let size = (self.max_batch as f64 * at.size.min(1.0)).round().max(1.0) as usize;
        let cap = self.max_latency;
        // Where a full batch takes all of the cap, batches are late unless they stay small: then it is a share of the cap.
        let longest = cap.saturating_sub(self.service.time(size)).max(cap / 10);
        let timeout = longest.mul_f64(at.timeout.max(0.0)).min(cap);
        let fixed = Fixed { wait: cap.mul_f64(at.wait.max(0.0)), size, timeout };
        // Longer than the timeout, a wait would only be a way of refusing.
        if fixed.timeout.is_zero() || fixed.wait >= fixed.timeout || self.tried.contains(&fixed) {
            return;
        }
        self.tried.push(fixed);
        let Some(outcome) = (self.run)(fixed) else { return };
        let worth = |outcome: &Outcome| (outcome.on_time, Reverse(outcome.mean_latency()));
        if self.best.as_ref().is_none_or(|best| worth(&outcome) > worth(&best.outcome)) {
            self.best = Some(Best { at, fixed, outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Model, OpenLoop, Process};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn scenario(policy: Box<dyn Policy>) -> Scenario {
        let service = Service::affine(ms(10), ms(1));
        let model = Model {
            service,
            max_latency: ms(50),
            max_batch: 32,
            policy,
            weight: std::num::NonZeroUsize::MIN,
            tried: None,
            way_back: Duration::ZERO,
            warm: false,
        };
        Scenario { runners: 1, models: vec![model], seed: 1, timer: Duration::ZERO }
    }

    #[test]
    fn alone_on_the_road_the_best_is_not_to_wait() {
        let lone = || {
            OpenLoop::new((0..50).map(|i| Arrival::at(uncork_core::estimator::Instant::from_nanos(i * 100_000_000))))
        };
        let (best, outcome) = best_fixed(scenario, lone).expect("a model");
        assert_eq!((best.wait, outcome.on_time, outcome.mean_latency()), (Duration::ZERO, 50, ms(11)));
    }

    #[test]
    fn under_overload_it_finds_the_timeout_that_eager_lacks() {
        let arrivals: Vec<Arrival> = Process::Poisson { rate: 1500.0 }.arrivals(ms(2000), 1).collect();
        let load = || OpenLoop::new(arrivals.iter().copied());
        let (best, outcome) = best_fixed(scenario, load).expect("a model");
        let eager = run(scenario(Box::new(Fixed::EAGER)), &mut load()).remove(0);
        assert!(best.timeout <= ms(30) && outcome.on_time > 5 * eager.on_time, "{best:?} {}", outcome.on_time);
        assert_eq!(best_fixed(scenario, load).expect("a model").0, best, "the search is deterministic");
    }
}
