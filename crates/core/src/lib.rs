//! What uncork decides with: how long batches take, and when to release one. Pure: no clock, no I/O, no randomness.
//!
//! | module | what it answers |
//! | --- | --- |
//! | [`estimator`] | how long will a batch of n rows take? A line through recent batches, its noise, and whether it still holds |
//! | [`policy`] | what is to be done now? [`Cork`](policy::Cork) decides for one queue, [`Dispatcher`](policy::Dispatcher) for a pool |
//! | [`front`] | is a request read on of which only the head is read, or refused? For what reads requests ahead of a queue |
//!
//! Whoever has an event loop can drive a [`Dispatcher`](policy::Dispatcher): tell it what happens and when, poll it, and do what it
//! says. The batcher of `uncork-batcher` is one such loop, the simulator of `uncork-sim` another.
//!
//! ```
//! use std::time::Duration;
//! use uncork_core::estimator::Instant;
//! use uncork_core::policy::{Cork, Dispatcher, Entry, Landing, Lane, Step};
//!
//! let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
//! let mut pool = Dispatcher::new(1); // runs one batch at a time
//! let lane = pool.open(Lane::new(Box::new(Cork), 8)); // of at most 8 rows
//! for id in 0..3 {
//!     let (arrival, deadline) = (at(0), at(50));
//!     pool.arrive(lane, Entry::new(id, arrival, deadline));
//! }
//! let Step::Release(batch) = pool.poll(at(0), |_, _| true) else { panic!("a runner is free") };
//! assert_eq!((batch.entries.len(), batch.predicted), (3, None));
//! assert_eq!(pool.poll(at(1), |_, _| true), Step::Park); // until something happens: 12 ms later, the batch is back
//! pool.land(at(12), batch.ticket, Landing::Answered { took: Duration::from_millis(12), late: 0 });
//! assert_eq!(pool.fit(lane).predict(3), Some(Duration::from_millis(12)));
//! ```

pub mod estimator;
pub mod front;
pub mod policy;
