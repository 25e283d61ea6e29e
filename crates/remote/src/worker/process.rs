//! A worker's process: its own group, one end of a socket as its standard input, what it prints piped to us.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::{PROTOCOL, Program, WorkerError};

/// Most processes of a worker that are looked at for their memory.
const MOST_FAMILY: usize = 1024;

/// Groups of processes that are not over, for whoever ends the program.
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Told whenever one of [`LIVE`] is over.
static OVER: Condvar = Condvar::new();

/// Kills every worker of this program that does not end by itself in time: called at the program's end, when nothing is asked of
/// them any more.
pub fn end_all(grace: Duration) {
    let until = Instant::now() + grace;
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    while !live.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        live = OVER.wait_timeout(live, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    live.iter().filter_map(|&group| Pid::from_raw(group)).for_each(kill);
}

/// A group that is gone already needs no killing.
fn kill(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// A running worker. It is killed, with all that it started, when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    is_over: bool,
}

/// What is connected to a process.
pub(super) struct Ends {
    pub(super) socket: UnixStream,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts the program.
    pub(super) fn start(program: &Program, model: &str) -> Result<(Process, Ends), WorkerError> {
        let [file, arguments @ ..] = &program.command[..] else {
            return Err(WorkerError::Start("its command is empty".into()));
        };
        let fail = |what: &str, error: io::Error| WorkerError::Start(format!("{what}: {error}"));
        // Both ends are closed on exec: no other child gets one.
        let (ours, theirs) = StdStream::pair().map_err(|error| fail("no socket is to be had", error))?;
        ours.set_nonblocking(true).map_err(|error| fail("the socket cannot be set up", error))?;
        let socket = UnixStream::from_std(ours).map_err(|error| fail("the socket cannot be set up", error))?;
        let mut command = Command::new(file);
        command.args(arguments).env("UNCORK_WORKER", PROTOCOL.to_string()).env("UNCORK_MODEL", model);
        command.envs(program.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it starts itself dies with it, and a signal for us from a terminal is not one for it.
        command.process_group(0);
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.spawn().map_err(|error| {
            let folder = program.folder.as_ref().map(|folder| format!(" in {}", folder.display())).unwrap_or_default();
            fail(&format!("'{file}' cannot be started{folder}"), error)
        })?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = id.ok_or_else(|| WorkerError::Start("it has no process id".into()))?;
        live.insert(group.as_raw_nonzero().get());
        drop(live);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = stdout.zip(stderr).ok_or_else(|| WorkerError::Start("it has no pipes".into()))?;
        let process = Process { child, group, is_over: false };
        Ok((process, Ends { socket, stdout, stderr }))
    }

    /// Its process id.
    pub(super) fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Returns when it has ended by itself. It is not waited for, so its id is still its own then.
    pub(super) async fn ended(&self) {
        // An error would be one of the runtime, which ends; its socket tells of the worker's end as well.
        let Ok(mut told) = signal(SignalKind::child()) else { return std::future::pending().await };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.group), options), Ok(None)) {
            told.recv().await;
        }
    }

    /// Kills it and all that it started, and says how it ended.
    pub(super) async fn end(&mut self) -> io::Result<ExitStatus> {
        // Before it is waited for: until then no other process can have its id.
        kill(self.group);
        let status = self.child.wait().await;
        self.over();
        status
    }

    fn over(&mut self) {
        self.is_over = true;
        forget(self.group);
    }
}

fn forget(group: Pid) {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&group.as_raw_nonzero().get());
    OVER.notify_all();
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            kill(self.group);
            // tokio waits for the child where there is still a runtime, so that it leaves no entry in the system's table.
            self.over();
        }
    }
}

/// Bytes of memory that a process and all that it started have resident. What several of them share counts once: it is divided
/// between them.
pub(super) fn resident(process: i32) -> Option<u64> {
    let all = family(process);
    if let [alone] = all[..] {
        let text = std::fs::read_to_string(format!("/proc/{alone}/statm")).ok()?;
        let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
        return Some(pages * rustix::param::page_size() as u64);
    }
    // One that has gone meanwhile has none.
    Some(all.into_iter().filter_map(share).sum())
}

/// A process and its children, and theirs. Those whose parent has gone belong to nobody.
fn family(process: i32) -> Vec<i32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&parent) = all.get(next).filter(|_| all.len() < MOST_FAMILY) {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<i32> = texts.flat_map(|text| numbers(&text)).collect();
        all.extend(children);
    }
    all
}

fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Bytes of a process's memory, pages that others have too divided by how many have them ("Pss" in proc(5)).
fn share(process: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?;
    kilobytes.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// How a process ended, in words.
pub(super) fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(9)) => "it was killed (signal 9)".into(),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => format!("it ended: {status}"),
    }
}
