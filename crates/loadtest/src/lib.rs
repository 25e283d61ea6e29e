//! Load with a verdict: requests sent when they are due whatever becomes of the earlier ones, and objectives judged by what
//! callers would have seen.
//!
//! Schedules, objectives, verdicts and the search for the highest rate are pure; [`run`] does the sending.
//!
//! A [`Url`] that takes a connection is a [`Place`]; with threads and connections it is the [`Means`] to send a [`Load`] of requests
//! that a [`Target`] makes, such as [`Same`] or [`Bodies`]. What comes back is a [`Run`], which [`judge`] holds against each [`Slo`].
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use uncork_loadtest::{Load, Means, OpenLoad, Same, Slo, Times, Trust, Url, Verdict, judge, message, run};
//! use uncork_sim::Process;
//!
//! # fn main() -> Result<(), String> {
//! let url = Url::read("http://127.0.0.1:8080/models/echo")?;
//! let place = url.connect(&Trust::default(), false)?; // HTTP/1.1
//! let json = [("content-type".to_owned(), "application/json".to_owned())];
//! let target = Same::new(message("POST", &url.path, &url.host, &json, Some(br#"{"text": "hello"}"#)));
//! let load = Load::Open(OpenLoad {
//!     times: Times::Process(Process::Poisson { rate: 500.0 }), // requests a second
//!     rows: 1..=1,
//!     warm_up: Duration::from_secs(1),
//!     length: Duration::from_secs(10),
//!     seed: 1,
//! });
//! let means = Means {
//!     address: place.address,
//!     speech: place.speech,
//!     threads: 1,
//!     connections: 1000,
//!     timeout: Duration::from_secs(10),
//!     deadline: None,
//! };
//! let slos: Vec<Slo> = vec!["p99<=25ms".parse()?, "errors<=0.1%".parse()?];
//! let stop = AtomicBool::new(false); // somebody else may set it, to end the run
//! let seen = run(&load, &target, &means, &stop, |_pulses| ())?;
//! let (verdict, judged) = judge(&seen, &slos);
//! println!("{} requests, {} answered well", seen.tally.requests(), seen.tally.good());
//! for one in &judged {
//!     println!("{}: {}", one.sentence, if one.met { "met" } else { "missed" }); // p99 18.2 ms <= 25 ms: met
//! }
//! assert_eq!(verdict, Verdict::Passed);
//! # Ok(())
//! # }
//! ```

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
