//! One thread that sends requests when they are due and hears the answers.
//!
//! A turn of its loop takes what is due, sends it on free connections, waits until the next is due or something is heard,
//! and hears it. With two system calls a request and one a turn, it is bound by the kernel's part of a connection.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};

use super::backlog::Backlog;
use super::connection::{Connection, NOT_MADE, NOT_SECURED, Request, State, broken, is_out_of_sockets};
use super::place::{Address, Speech};
use super::pulse::Pulse;
use super::source::Source;
use super::tally::{Ending, Tally, Times};
use super::target::Target;
use super::timer::{TIMER, Timer};

/// Events heard in one turn: enough to share its cost, few enough for requests to leave in between.
const MOST_EVENTS: usize = 256;
/// Requests taken in one turn: fewer, so that answers do not lie unread, and hold their connections, where there is too much to do. What
/// is too much then waits to be taken, and is seen as the generator's lateness.
const MOST_TAKEN: usize = 64;
/// Requests that were due too long ago are passed over, up to so many in a turn: some milliseconds.
const MOST_PASSED_OVER: usize = 16_384;
/// Bytes read at once.
const BUFFER: usize = 64 * 1024;
/// How often requests that wait too long are looked for. An answer that comes before the look is held against their time all the same.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(10);
/// No turn waits longer, so that a signal to stop is heard.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How often a pulse is given.
const BETWEEN_PULSES: Duration = Duration::from_millis(100);
/// A connection that was idle for this long may have been closed by the server just when a request was on its way. Such a
/// request is sent once more, as every client does.
const MAY_BE_CLOSED: Duration = Duration::from_millis(500);

/// What a thread is told.
pub(super) struct Orders<'a> {
    pub(super) address: Address,
    pub(super) speech: Speech,
    pub(super) target: &'a dyn Target,
    pub(super) source: Source,
    /// The thread's requests are numbered from this on, in steps.
    pub(super) first_number: u64,
    pub(super) step: u64,
    /// What the clock showed when the run began, or will.
    pub(super) epoch: Instant,
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
    /// From due on; a connection is closed that has no answer so long after sending.
    pub(super) timeout: Duration,
    pub(super) backlog: Backlog,
    pub(super) max_connections: usize,
    pub(super) stop: &'a AtomicBool,
    pub(super) pulses: Sender<Pulse>,
}

/// What a thread saw.
pub(super) struct Seen {
    pub(super) tally: Tally,
    /// Part of the measurement that it spent, and not in waiting.
    pub(super) busy: f64,
    /// Connections at once.
    pub(super) connections: usize,
    /// Whether the system allowed no more open files for another one.
    pub(super) out_of_files: bool,
}

pub(super) struct Generator<'a> {
    orders: Orders<'a>,
    poll: Poll,
    timer: Timer,
    connections: Vec<Option<Connection>>,
    /// Free places among the connections, and places that are free from the next turn on: events of this one may still
    /// speak of who was there.
    free: Vec<usize>,
    freed: Vec<usize>,
    open: usize,
    connecting: usize,
    most_open: usize,
    out_of_files: bool,
    /// Place and serial of connections without a request, the most recently used last; those that are gone are passed over.
    idle: Vec<(usize, u64)>,
    /// Taken requests that wait for a connection.
    waiting: VecDeque<Request>,
    /// Places of connections that may have read something beside what events tell.
    read_ahead: Vec<usize>,
    busy_connections: usize,
    next_number: u64,
    next_serial: u64,
    tally: Tally,
    pulse: Pulse,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// When what is heard now may have been there at the earliest.
    heard_earliest: Duration,
    last_return: Duration,
    waited: Duration,
}

impl<'a> Generator<'a> {
    pub(super) fn new(orders: Orders<'a>) -> io::Result<Generator<'a>> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry())?;
        Ok(Generator {
            tally: Tally::new(orders.warm_up, orders.length),
            next_number: orders.first_number,
            orders,
            poll,
            timer,
            connections: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            open: 0,
            connecting: 0,
            most_open: 0,
            out_of_files: false,
            idle: Vec::new(),
            waiting: VecDeque::new(),
            read_ahead: Vec::new(),
            busy_connections: 0,
            next_serial: 0,
            pulse: Pulse::default(),
            buffer: vec![0; BUFFER],
            scratch: Vec::new(),
            heard_earliest: Duration::ZERO,
            last_return: Duration::ZERO,
            waited: Duration::ZERO,
        })
    }

    fn now(&self) -> Duration {
        self.orders.epoch.elapsed()
    }

    /// Sends everything and hears the answers.
    ///
    /// # Errors
    /// The machine gives no more of what waiting for sockets needs.
    pub(super) fn run(mut self) -> io::Result<Seen> {
        // Before the run the clock shows its begin, and what is due then would be sent and answered in no time.
        std::thread::sleep(self.orders.epoch.saturating_duration_since(Instant::now()));
        let mut events = Events::with_capacity(MOST_EVENTS);
        let end = self.orders.warm_up + self.orders.length;
        let (mut next_sweep, mut next_pulse) = (Duration::ZERO, BETWEEN_PULSES);
        loop {
            let now = self.now();
            if self.orders.stop.load(Ordering::Relaxed) {
                self.count_under_way(now);
                break;
            }
            self.take_due(now);
            self.send_waiting();
            if now >= next_sweep {
                self.sweep(now);
                next_sweep = now + BETWEEN_SWEEPS;
            }
            if now >= next_pulse {
                self.beat();
                next_pulse = now + BETWEEN_PULSES;
            }
            if self.orders.source.next_at().is_none() && self.busy_connections == 0 && self.waiting.is_empty() {
                break;
            }
            self.hear_ahead();
            let until = [self.orders.source.next_at().unwrap_or(Duration::MAX), next_sweep.max(now + LONGEST_WAIT / 5)];
            let until = until.into_iter().min().unwrap_or_default().min(now + LONGEST_WAIT);
            let began = self.now();
            self.wait(&mut events, began, until)?;
            let returned = self.now();
            if began >= self.orders.warm_up && began < end {
                self.waited += returned - began;
            }
            // A wait that did not wait may bring what was there before the last turn had ended.
            let blocked = returned - began > Duration::from_micros(5);
            self.heard_earliest = if blocked { returned } else { self.last_return };
            self.last_return = returned;
            for event in &events {
                if event.token() != TIMER {
                    self.hear(event);
                }
            }
            self.free.append(&mut self.freed);
        }
        self.beat();
        // Who has nothing more to do is idle from here on, and was not busy.
        let spent = self.now().min(end).saturating_sub(self.orders.warm_up);
        let was_stopped = self.orders.stop.load(Ordering::Relaxed);
        let measured = if was_stopped { spent } else { self.orders.length };
        let busy = spent.saturating_sub(self.waited).as_secs_f64() / measured.as_secs_f64().max(1e-9);
        Ok(Seen {
            tally: self.tally,
            busy: busy.min(1.0),
            connections: self.most_open,
            out_of_files: self.out_of_files,
        })
    }

    fn wait(&mut self, events: &mut Events, now: Duration, until: Duration) -> io::Result<()> {
        match self.timer.poll(&mut self.poll, events, now, until) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other,
        }
    }

    fn take_due(&mut self, now: Duration) {
        let oldest = self.orders.source.next_at().filter(|at| *at <= now);
        self.orders.backlog.turn(now, oldest);
        let mut taken = 0;
        for _ in 0..MOST_PASSED_OVER {
            if taken == MOST_TAKEN {
                return;
            }
            let Some(due) = self.orders.source.take(now) else { return };
            let number = self.next_number;
            self.next_number += self.orders.step;
            self.pulse.due += 1;
            let request = Request { number, rows: due.rows, due: due.at, taken: now, again: false };
            if self.orders.backlog.is_too_late(now, due.at) {
                self.ended(request, None, now, None, &Ending::TooLate, None);
            } else {
                self.waiting.push_back(request);
                taken += 1;
            }
        }
    }

    /// Sends what waits, as far as there are connections, and opens more where they are too few.
    fn send_waiting(&mut self) {
        while let Some(&request) = self.waiting.front() {
            let now = self.now();
            if request.is_over(now, self.orders.timeout) {
                self.waiting.pop_front();
                self.ended(request, None, now, None, &self.unsent(&request, now), None);
                continue;
            }
            let Some(place) = self.idle_connection() else {
                if self.open < self.orders.max_connections && self.connecting < self.waiting.len() {
                    self.connect();
                    continue;
                }
                return;
            };
            self.waiting.pop_front();
            self.send(place, request, now);
        }
    }

    /// A connection without a request, which is then taken from the idle ones.
    fn idle_connection(&mut self) -> Option<usize> {
        while let Some((place, serial)) = self.idle.pop() {
            let there = self.connections.get(place).and_then(Option::as_ref);
            if there.is_some_and(|there| there.serial == serial && matches!(there.state, State::Idle(_))) {
                return Some(place);
            }
        }
        None
    }

    fn connect(&mut self) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let (serial, now) = (self.next_serial, self.now());
        self.next_serial += 1;
        match Connection::open(
            &self.orders.address,
            &self.orders.speech,
            self.poll.registry(),
            Token(place),
            serial,
            now,
        ) {
            Ok(connection) => {
                self.connections[place] = Some(connection);
                self.open += 1;
                self.connecting += 1;
                self.most_open = self.most_open.max(self.open);
            }
            Err(error) => {
                self.free.push(place);
                self.out_of_files |= is_out_of_sockets(&error);
                if is_out_of_sockets(&error) && self.open > 0 {
                    // What there is has to do from here on.
                    self.orders.max_connections = self.open;
                } else {
                    self.fail_first_waiting(broken(&error));
                }
            }
        }
    }

    fn send(&mut self, place: usize, request: Request, sent: Duration) {
        let Some(connection) = self.connections[place].as_mut() else { return };
        let since = if let State::Idle(since) = connection.state { since } else { sent };
        connection.state = State::Busy { request, sent, after_idling: sent.saturating_sub(since) };
        self.busy_connections += 1;
        let bytes = self.orders.target.request(request.number, request.rows, &mut self.scratch);
        if let Err(why) = connection.send(bytes) {
            return self.lose(place, why);
        }
        if connection.reads_ahead() {
            self.read_ahead.push(place);
        }
    }

    /// Hears what came while requests were sent.
    fn hear_ahead(&mut self) {
        while let Some(place) = self.read_ahead.pop() {
            self.receive(place, false);
        }
    }

    /// Something happened to a connection.
    fn hear(&mut self, event: &Event) {
        let place = event.token().0;
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else { return };
        match connection.state {
            State::Connecting(_) => match connection.is_connected() {
                Ok(true) => {
                    let serial = connection.serial;
                    connection.state = State::Idle(self.orders.epoch.elapsed());
                    self.connecting -= 1;
                    self.idle.push((place, serial));
                    self.send_waiting();
                }
                Ok(false) => {}
                Err(why) => self.lose(place, why),
            },
            State::Idle(_) => {
                // It asked for nothing: whatever comes is the end of it, but for what protocols say of themselves.
                let has_come = event.is_readable() || event.is_read_closed() || event.is_error();
                if has_come && !connection.is_idle(&mut self.buffer) {
                    self.close(place);
                }
            }
            State::Busy { .. } | State::Unwanted { .. } => {
                if event.is_writable()
                    && let Err(why) = connection.go_on()
                {
                    return self.lose(place, why);
                }
                self.receive(place, event.is_read_closed());
            }
        }
    }

    fn receive(&mut self, place: usize, closing: bool) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else { return };
        let asked = match connection.state {
            State::Busy { request, sent, .. } => Some((request, sent)),
            State::Unwanted { .. } => None,
            State::Idle(_) | State::Connecting(_) => return,
        };
        let target = self.orders.target;
        let judge = |answer: super::wire::Answer<'_>| {
            let ended =
                asked.map(|(request, sent)| (request, sent, target.judge(request.number, request.rows, &answer)));
            (ended, answer.status, answer.keeps_alive, answer.batch_rows)
        };
        let (ended, status, keeps_alive, batch_rows) = match connection.hear(&mut self.buffer, judge) {
            Ok(None) => return,
            Ok(Some(told)) => told,
            Err(why) => return self.lose(place, why),
        };
        let age = connection.age();
        let now = self.now();
        let came = age.map(|age| now.saturating_sub(age));
        let (earliest, latest) = (came.unwrap_or(self.heard_earliest), came.unwrap_or(now));
        if ended.as_ref().is_none_or(|(request, ..)| request.is_over(latest, self.orders.timeout)) {
            self.tally.came_too_late(latest);
        }
        if let Some((request, sent, ending)) = ended {
            // Who waits so long has gone, whatever the answer says.
            let (status, ending, batch_rows) = match request.is_over(latest, self.orders.timeout) {
                true => (None, Ending::TimedOut, None),
                false => (Some(status), ending, batch_rows),
            };
            self.ended_between(request, Some(sent), [earliest, latest], status, &ending, batch_rows);
            self.busy_connections -= 1;
        }
        match self.connections[place].as_mut() {
            // What is left of a request would end up in the next one.
            Some(connection) if keeps_alive && !closing && connection.is_sent() => {
                connection.state = State::Idle(now);
                self.idle.push((place, connection.serial));
            }
            _ => self.close(place),
        }
        self.send_waiting();
    }

    fn ended(
        &mut self,
        request: Request,
        sent: Option<Duration>,
        now: Duration,
        status: Option<u16>,
        ending: &Ending,
        batch_rows: Option<u32>,
    ) {
        self.ended_between(request, sent, [self.heard_earliest, now], status, ending, batch_rows);
    }

    /// It ended at the earlier of these times at the earliest, and is taken to have ended at the other.
    fn ended_between(
        &mut self,
        request: Request,
        sent: Option<Duration>,
        [earliest, ended]: [Duration; 2],
        status: Option<u16>,
        ending: &Ending,
        batch_rows: Option<u32>,
    ) {
        // It may have been sent in this very turn.
        let begun = sent.unwrap_or(request.taken);
        let ended = ended.max(begun);
        let ended_earliest = earliest.clamp(begun, ended);
        let times = Times { due: request.due, taken: request.taken, sent, ended, ended_earliest };
        let rows = self.orders.target.rows(request.number, request.rows);
        self.tally.count(times, rows, status, ending, batch_rows);
        self.pulse.count(ended.saturating_sub(request.due), ending, batch_rows);
        self.orders.source.ended(ended, matches!(ending, Ending::Broken(_) | Ending::TooLate));
    }

    /// A connection is gone, and with it the request on it.
    fn lose(&mut self, place: usize, why: &'static str) {
        let Some(connection) = self.connections[place].as_ref() else { return };
        match connection.state {
            State::Connecting(_) => {
                self.close(place);
                self.fail_first_waiting(why);
            }
            State::Idle(_) | State::Unwanted { .. } => self.close(place),
            State::Busy { request, sent, after_idling } => {
                let heard_nothing = !connection.has_part();
                self.busy_connections -= 1;
                self.close(place);
                if heard_nothing && after_idling >= MAY_BE_CLOSED && !request.again {
                    self.tally.resent += u64::from(request.due >= self.orders.warm_up);
                    self.waiting.push_front(Request { again: true, ..request });
                    return;
                }
                let now = self.now();
                self.ended(request, Some(sent), now, None, &Ending::Broken(why), None);
            }
        }
    }

    /// How a request ended that was over before it could be sent: by whoever took the larger part of its time.
    fn unsent(&self, request: &Request, now: Duration) -> Ending {
        let late = request.taken.saturating_sub(request.due);
        match late > now.saturating_sub(request.taken) {
            true => Ending::TooLate,
            // All connections were busy with others, or there was none.
            false if self.open > self.connecting || self.connecting == 0 => Ending::Unsent,
            false if self.orders.speech.tls.is_some() => Ending::Broken(NOT_SECURED),
            false => Ending::Broken(NOT_MADE),
        }
    }

    /// There is no connection to be had for it.
    fn fail_first_waiting(&mut self, why: &'static str) {
        if let Some(request) = self.waiting.pop_front() {
            let now = self.now();
            self.ended(request, None, now, None, &Ending::Broken(why), None);
        }
    }

    fn close(&mut self, place: usize) {
        let Some(mut connection) = self.connections[place].take() else { return };
        connection.forget(self.poll.registry());
        self.connecting -= usize::from(matches!(connection.state, State::Connecting(_)));
        self.open -= 1;
        self.freed.push(place);
    }

    /// Ends what has waited too long.
    fn sweep(&mut self, now: Duration) {
        let timeout = self.orders.timeout;
        while let Some(request) = self.waiting.front().copied().filter(|request| request.is_over(now, timeout)) {
            self.waiting.pop_front();
            self.ended(request, None, now, None, &self.unsent(&request, now), None);
        }
        for place in 0..self.connections.len() {
            let Some(connection) = self.connections[place].as_mut() else { continue };
            let timed_out = connection.state.timed_out(now, timeout);
            if let Some((_, sent)) = timed_out {
                connection.state = State::Unwanted { sent };
                self.busy_connections -= 1;
            }
            if connection.state.is_given_up(now, timeout) {
                self.close(place);
            }
            if let Some((request, sent)) = timed_out {
                self.ended(request, Some(sent), now, None, &Ending::TimedOut, None);
            }
        }
        self.free.append(&mut self.freed);
        self.idle.retain(|(place, serial)| {
            self.connections.get(*place).and_then(Option::as_ref).is_some_and(|there| there.serial == *serial)
        });
    }

    /// Nobody knows how it would have ended; that it took so long already is known.
    fn count_under_way(&mut self, now: Duration) {
        let asked = self.connections.iter().flatten().filter_map(|connection| match connection.state {
            State::Busy { request, .. } => Some(request.due),
            _ => None,
        });
        for due in asked.chain(self.waiting.iter().map(|request| request.due)) {
            self.tally.count_under_way(due, now);
        }
    }

    /// Tells whoever watches what happened since the last time.
    fn beat(&mut self) {
        let mut pulse = std::mem::take(&mut self.pulse);
        pulse.thread = self.orders.first_number;
        pulse.busy_connections = self.busy_connections;
        pulse.waiting = self.waiting.len();
        // Nobody may be watching any more.
        let _ = self.orders.pulses.send(pulse);
    }
}
