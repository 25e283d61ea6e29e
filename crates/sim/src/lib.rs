//! A server in virtual time: seeded arrivals, simulated runners, and the very policy and estimator that the server runs.
//!
//! Pure: equal inputs and an equal seed give an equal outcome, and a simulated hour takes as long as its requests need.

mod arrivals;
mod best_fixed;
mod engine;
mod optimum;
mod outcome;
mod service;
mod several;
mod trace;
mod variety;

pub use arrivals::{Arrival, ClosedLoop, OpenLoop, Process, Source};
pub use best_fixed::best_fixed;
pub use engine::{Model, Scenario, run};
pub use optimum::{optimum, upper_bound};
pub use outcome::{Class, Counts, Outcome, Slot, Timeline};
pub use service::Service;
pub use several::Several;
pub use trace::{TraceError, TraceReader};
pub use variety::{Varied, Variety};
