//! The batcher through its public face: virtual time with an asynchronous stand-in for the runners, and real threads.

mod foreseen;
mod notes;
mod overload;
mod panics;
mod pools;
mod refusals;
mod rehearsals;
mod stand_in;
mod stuck;
mod threads;
mod virtual_time;
