//! A generator that is behind does not make it worse: it leaves out what is too late, and connects anew for no reason of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uncork_loadtest::{Address, Due, Load, Means, OpenLoad, Run, Same, Speech, Times, message, run};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
/// Rarely, a busy machine lets a server wait for longer than a request has: such a connection is closed with good reason.
const BY_CHANCE: usize = 20;

/// A server that answers at once, the number of connections that it has had, and how many requests.
fn server() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (had, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, requests) = (Arc::clone(&had), Arc::clone(&asked));
    // It ends with the process of the test.
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            let requests = Arc::clone(&requests);
            thread::spawn(move || serve(&stream.expect("a connection"), &requests));
        }
    });
    (address, had, asked)
}

/// Answers whatever is read: one request at a time is on a connection, and comes whole.
fn serve(mut stream: &TcpStream, requests: &AtomicUsize) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
        requests.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(ANSWER).is_err() {
            return;
        }
    }
}

/// Sends `requests`, one due each `gap`, over so many connections.
fn send(address: SocketAddr, requests: u32, gap: Duration, connections: usize, timeout: Duration) -> Run {
    let dues: Vec<Due> = (0..requests).map(|i| Due { at: gap * i, rows: 1 }).collect();
    let (times, length) = (Times::Trace(dues.into()), gap * requests + timeout);
    let load = Load::Open(OpenLoad { times, rows: 1..=1, warm_up: Duration::ZERO, length, seed: 1 });
    let target = Same::new(message("GET", "/", "here", &[], None));
    let (address, speech) = (Address::Tcp(address), Speech::default());
    let means = Means { address, speech, threads: 1, connections, timeout, deadline: None };
    run(&load, &target, &means, &AtomicBool::new(false), |_| ()).expect("the machine has sockets")
}

/// It sent all of them, each long after its time was over, and closed a connection for each that it found so.
#[test]
fn what_the_generator_comes_to_too_late_is_not_sent_and_costs_no_connection() {
    let (address, had, asked) = server();
    // All at once, and far more than can be sent in their time.
    let (requests, connections) = (300_000, 50);
    let run = send(address, requests, Duration::ZERO, connections, Duration::from_millis(250));
    let tally = &run.tally;
    assert_eq!(tally.requests(), u64::from(requests), "each is counted once");
    assert!(tally.too_late > u64::from(requests) / 4 && tally.too_late <= tally.unsent, "{:?}", tally.reasons);
    assert_eq!(tally.reasons.get("not sent: the generator came to it too late"), Some(&tally.too_late));
    assert!(tally.requests() - tally.unsent <= asked.load(Ordering::SeqCst) as u64, "what was not sent is told so");
    let had = had.load(Ordering::SeqCst);
    assert!(run.connections <= connections && had <= connections + BY_CHANCE, "{had} connections were opened");
}

/// There it is the connections that are too few: each request is sent when its time is nearly over.
#[test]
fn an_answer_that_nobody_waits_for_any_more_ends_no_connection() {
    let (address, had, asked) = server();
    // A connection carries one request at a time, and some ten thousand a second.
    let (requests, gap, timeout) = (500_000, Duration::from_micros(2), Duration::from_millis(50));
    let run = send(address, requests, gap, 1, timeout);
    let tally = &run.tally;
    assert_eq!(tally.requests(), u64::from(requests), "each is counted once");
    assert!(tally.unsent > 0 && tally.timed_out > 0, "{:?}", tally.reasons);
    assert!(tally.requests() - tally.unsent <= asked.load(Ordering::SeqCst) as u64, "what was not sent is told so");
    let had = had.load(Ordering::SeqCst);
    assert!(had <= BY_CHANCE && had as u64 <= tally.timed_out, "{had} connections were opened: {:?}", tally.reasons);
}
