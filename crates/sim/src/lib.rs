//! A server in virtual time: seeded arrivals, simulated runners, and the very policy and estimator that the server runs.
//!
//! Pure: equal inputs and an equal seed give an equal outcome, and a simulated hour takes as long as its requests need.
//!
//! - Arrivals come from a [`Source`]: an [`OpenLoop`] of times drawn from a [`Process`] or read by a [`TraceReader`], or a
//!   [`ClosedLoop`] of callers who wait for their answers; [`Several`] puts sources together.
//! - [`run`] drives a [`Scenario`], models on a pool of runners, with any [`Policy`](uncork_core::policy::Policy), and counts an
//!   [`Outcome`] for each.
//! - [`optimum`] and [`upper_bound`] say what the best policy could have done had it known the future; [`best_fixed`] what the best
//!   wait and size, set by hand, would have.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use std::time::Duration;
//! use uncork_core::policy::Cork;
//! use uncork_sim::{Model, OpenLoop, Process, Scenario, Service, run};
//!
//! let ms = Duration::from_millis;
//! let model = Model {
//!     service: Service::affine(ms(2), Duration::from_micros(50)), // a batch of n rows takes 2 + 0.05·n ms
//!     max_latency: ms(50),
//!     max_batch: 128,
//!     weight: NonZeroUsize::MIN,
//!     policy: Box::new(Cork),
//!     tried: None,
//!     way_back: Duration::ZERO,
//!     warm: true,
//! };
//! let scenario = Scenario { runners: 1, models: vec![model], seed: 1, timer: Duration::ZERO };
//! // Ten seconds of 10,000 requests a second, of the 15,000 that it could do in full batches.
//! let arrivals = Process::Poisson { rate: 10_000.0 }.arrivals(Duration::from_secs(10), 1);
//! let outcome = &run(scenario, &mut OpenLoop::new(arrivals))[0];
//! assert!(outcome.on_time == outcome.offered && outcome.mean_batch_rows() > 10.0);
//! ```

mod arrivals;
mod best_fixed;
mod engine;
mod optimum;
mod outcome;
mod process;
mod service;
mod several;
mod trace;
mod variety;

pub use arrivals::{Arrival, ClosedLoop, OpenLoop, Source};
pub use best_fixed::best_fixed;
pub use engine::{Model, Scenario, run};
pub use optimum::{optimum, upper_bound};
pub use outcome::{Class, Counts, Outcome, Slot, Timeline};
pub use process::{Process, ProcessError};
pub use service::Service;
pub use several::Several;
pub use trace::{TraceError, TraceReader};
pub use variety::{Varied, Variety};
