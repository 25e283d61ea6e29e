//! The bounds that the server keeps towards its clients, and who they may be.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use super::access::{Access, Door};
use super::tls::{Certificates, Tls};
use crate::quote::shown;

/// Every bound on connections, sizes and times, and who may ask. [`Default`] suits a server behind a load balancer as well as one alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Connections that are open at once; default 4096. For one more the connection is closed that has been idle longest.
    /// Where none has been idle for a second, it is answered 503 and closed, so that its client, or the
    /// load balancer before it, turns elsewhere at once instead of waiting unseen in the kernel's backlog. Higher: more
    /// clients, each for some 40 kB of memory and one file descriptor.
    pub max_connections: NonZeroUsize,
    /// Bytes of a request line and its headers together; default 16 KiB. More is answered 431.
    pub max_head_bytes: usize,
    /// Bytes of a request's body; default 64 MiB. More is answered 413, before reading where the length is announced.
    pub max_body_bytes: usize,
    /// Bytes that the body of an answer may take; default 256 MiB. A larger one is not written: the client is told 413, and
    /// to ask for fewer rows or outputs.
    pub max_answer_bytes: usize,
    /// Bytes that all bodies, those being read and those being answered with, may take together; default 1 GiB. What would
    /// go beyond is answered 503. Bodies that come in one piece, as those below some 100 kB do, and answers below 16 KiB are
    /// not counted: connections bound those. A holder of a token who has several requests in hand has no more of it than three
    /// times what is left free, so three quarters where he is the only one. Set it to what memory can spare, and at least to `max_body_bytes` and
    /// `max_answer_bytes`.
    pub max_bodies_bytes: usize,
    /// From the first byte of a head (on a new connection: from its opening) to its last; default 10 s. Then 408.
    pub head_timeout: Duration,
    /// From the end of the head to the end of the body; default 30 s. Then 408. Lower: slow senders hold their memory
    /// for less time. Higher: large bodies get through thin lines (64 MiB in 30 s needs 18 Mbit/s).
    pub body_timeout: Duration,
    /// How long a connection may lie open between two requests; default 75 s. Then it is closed without a word. Keep it
    /// above the idle time of a load balancer in front, or the balancer will send into connections that just closed.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer that is being sent; default 30 s. Then the connection is closed.
    pub write_timeout: Duration,
    /// From "not ready" to the moment from which no connection is accepted; default 0 s. Set it to what a load balancer
    /// needs to notice: until then it still sends requests here, and they are still answered.
    pub drain_delay: Duration,
    /// How long a shutdown waits for the requests in flight; default 30 s. What is then left is cut off.
    pub drain_timeout: Duration,
    /// Who may ask; default: whoever is on this machine.
    pub access: Access,
    /// What connections over TCP are secured with; default: nothing. Unix sockets are as they are.
    pub tls: Option<Tls>,
}

impl Options {
    /// Bounds of `max_connections`.
    pub const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
    /// Bounds of `max_head_bytes`. hyper's buffer, `READ_BUFFER`, must hold the largest head.
    pub const HEAD_BYTES: RangeInclusive<usize> = 1024..=64 * 1024;
    /// Bounds of `max_body_bytes`.
    pub const BODY_BYTES: RangeInclusive<usize> = 1024..=4 * 1024 * 1024 * 1024;
    /// Bounds of `max_answer_bytes`.
    pub const ANSWER_BYTES: RangeInclusive<usize> = 1024..=4 * 1024 * 1024 * 1024;
    /// Bounds of `max_bodies_bytes`.
    pub const BODIES_BYTES: RangeInclusive<usize> = 1024..=1024 * 1024 * 1024 * 1024;
    /// Bounds of the times that a client is waited for.
    pub const CLIENT_TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
    /// Bounds of `drain_delay` and `drain_timeout`.
    pub const DRAIN_TIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

    /// What is beyond its bounds, and would be beyond what can be counted.
    pub(super) fn check(&self) -> Result<(), String> {
        let times = [
            ("head_timeout", self.head_timeout, Options::CLIENT_TIME),
            ("body_timeout", self.body_timeout, Options::CLIENT_TIME),
            ("idle_timeout", self.idle_timeout, Options::CLIENT_TIME),
            ("write_timeout", self.write_timeout, Options::CLIENT_TIME),
            ("drain_delay", self.drain_delay, Options::DRAIN_TIME),
            ("drain_timeout", self.drain_timeout, Options::DRAIN_TIME),
        ];
        if let Some((field, _, bounds)) = times.into_iter().find(|(_, time, bounds)| time > bounds.end()) {
            return Err(format!("{field} may be {:?} at most", bounds.end()));
        }
        if self.max_connections.get() > *Options::CONNECTIONS.end() {
            return Err(format!("max_connections may be {} at most", Options::CONNECTIONS.end()));
        }
        Ok(())
    }

    /// Reads the files that it names, as a server does that is bound with it. What comes back is a warning: a certificate of the chain has
    /// expired, or will soon.
    ///
    /// # Errors
    /// One cannot be used: the sentence says which setting names it, what is wrong with it, and what to do.
    pub fn check_files(&self) -> Result<Option<String>, String> {
        if let Access::Tokens { file, .. } = &self.access {
            Door::of(&self.access).map_err(|error| {
                let file = shown(file);
                format!(
                    "tokens_file cannot be used: {error}; make {file} a file that this user can read, with lines such as: ci TOKEN \
                     inference"
                )
            })?;
        }
        let Some(files) = &self.tls else { return Ok(None) };
        let certificates = Certificates::read(files).map_err(|error| {
            format!(
                "TLS cannot be used: {error}; tls_certificate, tls_key and tls_client_ca name files in PEM that this user can read"
            )
        })?;
        Ok(certificates.warning(SystemTime::now()))
    }

    /// Bytes that one connection reads ahead, at most: room for the largest head, and large enough that a body of
    /// megabytes does not come in crumbs.
    pub(super) const READ_BUFFER: usize = 128 * 1024;
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_connections: NonZeroUsize::new(4096).expect("4096 is not zero"),
            max_head_bytes: 16 * 1024,
            max_body_bytes: 64 * 1024 * 1024,
            max_answer_bytes: 256 * 1024 * 1024,
            max_bodies_bytes: 1024 * 1024 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            access: Access::default(),
            tls: None,
        }
    }
}
