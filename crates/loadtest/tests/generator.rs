//! What the generator says of itself, and how it uses its connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uncork_loadtest::{Address, ClosedLoad, Load, Means, OpenLoad, Run, Same, Speech, Times, Tls, Trust, message, run};
use uncork_sim::Process;

/// A server each of whose connections is given to `serve`; it ends with the process of the test.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.expect("a connection")));
        }
    });
    address
}

/// One caller, who asks so for a while and thinks for a millisecond in between.
fn ask(address: SocketAddr, request: Vec<u8>, threads: usize) -> Run {
    ask_within(address, request, threads, Duration::from_secs(10))
}

/// The same, but he waits for no longer than that.
fn ask_within(address: SocketAddr, request: Vec<u8>, threads: usize, timeout: Duration) -> Run {
    ask_so(address, Speech::default(), request, threads, timeout)
}

/// The same over connections that speak so.
fn ask_so(address: SocketAddr, speech: Speech, request: Vec<u8>, threads: usize, timeout: Duration) -> Run {
    let (think, length) = (Duration::from_millis(1), Duration::from_millis(300));
    let load = ClosedLoad { callers: 1, think, rows: 1..=1, warm_up: Duration::ZERO, length, seed: 1 };
    let address = Address::Tcp(address);
    let means = Means { address, speech, threads, connections: 10, timeout, deadline: None };
    run(&Load::Closed(load), &Same::new(request), &means, &AtomicBool::new(false), |_| ()).expect("there are sockets")
}

/// A thread ended early, and nobody was told why.
#[test]
fn a_load_that_makes_no_sense_is_refused_before_anything_is_sent() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let address = Address::Tcp(server(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let (speech, timeout) = (Speech::default(), Duration::from_secs(1));
    let means = Means { address, speech, threads: 2, connections: 10, timeout, deadline: None };
    let (think, warm_up, length) = (Duration::from_millis(1), Duration::ZERO, Duration::from_millis(100));
    let backwards = std::ops::RangeInclusive::new(2, 1);
    let closed = ClosedLoad { callers: 3, think, rows: backwards.clone(), warm_up, length, seed: 1 };
    let times = |rate| Times::Process(Process::Poisson { rate });
    let open = OpenLoad { times: times(f64::NAN), rows: 1..=1, warm_up, length, seed: 1 };
    for (load, words) in [
        (Load::Closed(closed.clone()), "rows are 2..=1, which is no number of rows"),
        (Load::Closed(ClosedLoad { rows: 1..=1, think: Duration::MAX, ..closed.clone() }), "nobody thinks for"),
        (Load::Closed(ClosedLoad { rows: 1..=1, length: Duration::MAX, ..closed }), "100 years at most"),
        (Load::Open(open.clone()), "rate is NaN"),
        (Load::Open(OpenLoad { times: times(100.0), rows: backwards, ..open }), "rows are 2..=1"),
    ] {
        let request = Same::new(message("GET", "/", "here", &[], None));
        let refused = run(&load, &request, &means, &AtomicBool::new(false), |_| ());
        let why = refused.err().unwrap_or_default();
        assert!(why.contains(words), "{words}: {why}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_thread_that_has_nothing_to_do_is_not_busy() {
    let address = server(|mut stream| {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            let answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            answered.expect("the caller waits");
        }
    });
    let run = ask(address, message("GET", "/", "here", &[], None), 2);
    assert!(run.tally.good() > 1, "{:?}", run.tally.reasons);
    assert!(run.busy < 0.9, "busy for {} of the time", run.busy);
}

/// They were counted as good where they came before the generator looked for requests that wait too long.
#[test]
fn an_answer_after_its_timeout_is_none() {
    let timeout = Duration::from_millis(1);
    let address = server(move |mut stream| {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            let asked = Instant::now();
            while asked.elapsed() < 2 * timeout {
                std::hint::spin_loop();
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let run = ask_within(address, message("GET", "/", "here", &[], None), 1, timeout);
    let tally = &run.tally;
    assert_eq!((tally.good(), tally.statuses.len()), (0, 0), "{:?}", tally.reasons);
    assert_eq!(tally.timed_out + tally.unsent, tally.requests(), "{:?}", tally.reasons);
}

/// It was told that no connection was free.
#[test]
fn a_server_that_does_not_secure_connections_is_told_so() {
    let address = server(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let tls = Tls::new("localhost", &Trust::Anybody).expect("it is a name");
    let speech = Speech { tls: Some(tls), http2: false };
    let run = ask_so(address, speech, message("GET", "/", "here", &[], None), 1, Duration::from_millis(50));
    let told: Vec<&String> = run.tally.reasons.keys().collect();
    assert_eq!(told, ["no connection was secured in time; does the server speak TLS there?"]);
}

#[test]
fn an_answer_that_ends_in_the_middle_is_told_so() {
    for (part, told) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"[..], "in the middle of an answer"),
        (b"", "without an answer"),
    ] {
        let address = server(move |mut stream| {
            if stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                let _ = stream.write_all(part);
            }
        });
        let run = ask(address, message("GET", "/", "here", &[], None), 1);
        let reasons = &run.tally.reasons;
        assert!(run.tally.broken > 0 && reasons.keys().all(|reason| reason.ends_with(told)), "{reasons:?}");
    }
}

/// It reads bodies after its answers, as far as they come.
#[test]
fn what_an_early_answer_leaves_of_a_request_does_not_end_up_in_another() {
    // More than the system holds on its way.
    let body = vec![b'x'; 24 << 20];
    let (length, mixed) = (body.len() as u64, Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&mixed);
    let address = server(move |stream| {
        let mut reader = BufReader::new(&stream);
        loop {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
            }
            let answered = (&stream).write_all(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n");
            let mut body = Vec::new();
            let read = (&mut reader).take(length).read_to_end(&mut body);
            count.fetch_add(usize::from(body.iter().any(|byte| *byte != b'x')), Ordering::SeqCst);
            if answered.is_err() || read.is_err() {
                return;
            }
        }
    });
    let run = ask(address, message("POST", "/", "here", &[], Some(&body)), 1);
    assert!(run.tally.refused > 1, "{:?}", run.tally.reasons);
    assert_eq!(mixed.load(Ordering::SeqCst), 0, "bodies with something else in them");
}
