//! A runner that is somewhere else, and the threads on which its futures run.

use std::sync::{Arc, mpsc};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::runner::{Remote, Runner, RunnerError, Signature};
use crate::tensor::Tensors;

type Outputs = Result<Tensors, RunnerError>;

/// A [`Remote`] of any type.
pub(super) trait AnyRemote: Send + Sync {
    fn signature(&self) -> &Signature;
    fn may_refuse(&self) -> bool;
    fn run(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs>;
    fn rehearse(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs>;
}

impl<R: Remote + 'static> AnyRemote for R {
    fn signature(&self) -> &Signature {
        Remote::signature(self)
    }

    fn may_refuse(&self) -> bool {
        Remote::may_refuse(self)
    }

    fn run(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs> {
        async move { Remote::run(&*self, batch).await }.boxed()
    }

    fn rehearse(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs> {
        async move { Remote::rehearse(&*self, batch).await }.boxed()
    }
}

/// A handle to the runner and its threads, which end with the last handle.
#[derive(Clone)]
pub(crate) struct Away {
    remote: Arc<dyn AnyRemote>,
    threads: Arc<Threads>,
}

/// What the batchers' and HTTP's threads have no time for: joining rows, writing them out, reading answers.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // Whoever drops the last handle may be a task, which must not wait.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl std::fmt::Debug for Away {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Away").finish_non_exhaustive()
    }
}

impl Away {
    /// A runner with so many threads of its own.
    pub(super) fn start(name: &str, remote: Arc<dyn AnyRemote>, threads: usize) -> std::io::Result<Away> {
        let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()?;
        Ok(Away { remote, threads: Arc::new(Threads(Some(runtime))) })
    }

    /// Runs a future on the runner's threads.
    pub(super) fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.threads.0.as_ref().expect("it is taken when the last handle is dropped").spawn(future)
    }

    /// See [`Remote::run`].
    pub(super) fn run(&self, batch: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.remote).run(batch)
    }

    /// See [`Remote::rehearse`].
    pub(super) fn rehearse(&self, batch: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.remote).rehearse(batch)
    }

    /// Waits for the answer of a future of the runner's. The thread that waits does nothing else meanwhile.
    fn wait(&self, answer: BoxFuture<'static, Outputs>) -> Outputs {
        let (done, answered) = mpsc::channel();
        self.spawn(async move { done.send(answer.await) });
        answered.recv().unwrap_or_else(|_| Err(RunnerError::Failed("the runner panicked".into())))
    }
}

/// To whoever loads, measures and checks models, it is a runner like others, that one waits for.
impl Runner for Away {
    fn signature(&self) -> &Signature {
        self.remote.signature()
    }

    fn run(&mut self, batch: Tensors) -> Outputs {
        self.wait(Away::run(self, batch))
    }

    fn rehearse(&mut self, batch: Tensors) -> Outputs {
        self.wait(Away::rehearse(self, batch))
    }

    fn may_refuse(&self) -> bool {
        self.remote.may_refuse()
    }
}
