//! Load with a verdict: requests sent when they are due whatever becomes of the earlier ones, and objectives judged by what
//! callers would have seen.
//!
//! Schedules, objectives, verdicts and the search for the highest rate are pure; [`run`] does the sending.

mod backlog;
mod bodies;
mod check;
mod connection;
mod exposition;
mod generator;
mod grpc;
mod http2;
mod pace;
mod place;
mod pulse;
mod quantile;
mod run;
mod schedule;
mod search;
mod silence;
mod slo;
mod source;
mod stream;
mod tally;
mod target;
mod template;
mod timer;
mod tls;
mod v2;
mod verdict;
mod wire;

pub use bodies::{Bodies, Body, read as read_bodies};
pub use check::Tolerance;
pub use exposition::Exposition;
pub use grpc::{INFER as GRPC_INFER, headers as grpc_headers};
pub use pace::{Pace, Shape};
pub use place::{Address, Place, Speech, Url, without_values};
pub use pulse::Pulse;
pub use quantile::{at_quantile, mean};
pub use run::{Means, Run, run};
pub use schedule::{Due, Dues, OpenLoad, Times};
pub use search::{Found, Heard, Next, Search};
pub use slo::{Judged, Slo, Unit, short, written};
pub use source::{ClosedLoad, Load};
pub use tally::{Ending, Slot, Tally};
pub use target::{Same, Target, message};
pub use template::{Template, mixed};
pub use tls::{Tls, Trust};
pub use v2::{Form, Input, Metadata, metadata, metadata_by_grpc, only_model, random_bodies};
pub use verdict::{Verdict, judge, still_under_way};
pub use wire::Answer;
