//! A runner that is somewhere else, and the threads on which its futures run.

use std::mem::ManuallyDrop;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::runner::{Hooks, Remote, Runner, RunnerError, Signature, Watcher};
use crate::tensor::Tensors;

type Outputs = Result<Tensors, RunnerError>;

/// A [`Remote`] of any type.
pub(super) trait AnyRemote: Send + Sync {
    fn signature(&self) -> &Signature;
    fn may_refuse(&self) -> bool;
    fn run(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs>;
    fn rehearse(self: Arc<Self>, batch: Tensors) -> BoxFuture<'static, Outputs>;
    fn hooks(&self) -> Hooks;
    fn takes_whole(&self) -> bool;
    fn prepare(self: Arc<Self>, request: Tensors) -> BoxFuture<'static, Outputs>;
    fn finish(self: Arc<Self>, outputs: Tensors) -> BoxFuture<'static, Outputs>;
    fn watched(&self, watcher: Watcher);
    fn ready(self: Arc<Self>) -> BoxFuture<'static, ()>;
    fn trouble(&self) -> Option<String>;
    fn end(self: Arc<Self>) -> BoxFuture<'static, ()>;
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

    fn hooks(&self) -> Hooks {
        Remote::hooks(self)
    }

    fn takes_whole(&self) -> bool {
        Remote::takes_whole(self)
    }

    fn prepare(self: Arc<Self>, request: Tensors) -> BoxFuture<'static, Outputs> {
        async move { Remote::prepare(&*self, request).await }.boxed()
    }

    fn finish(self: Arc<Self>, outputs: Tensors) -> BoxFuture<'static, Outputs> {
        async move { Remote::finish(&*self, outputs).await }.boxed()
    }

    fn watched(&self, watcher: Watcher) {
        Remote::watched(self, watcher);
    }

    fn ready(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move { Remote::ready(&*self).await }.boxed()
    }

    fn trouble(&self) -> Option<String> {
        Remote::trouble(self)
    }

    fn end(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move { Remote::end(&*self).await }.boxed()
    }
}

/// Longest time that a runner has to leave nothing behind.
const END: Duration = Duration::from_secs(5);

/// A handle to the runner and its threads, which end with the last handle.
#[derive(Clone)]
pub(crate) struct Away(Arc<Inner>);

struct Inner {
    remote: Arc<dyn AnyRemote>,
    /// What the batchers' and HTTP's threads have no time for: joining rows, writing them out, reading answers.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let remote = Arc::clone(&self.remote);
        // Whoever drops the last handle may be a task, which must not wait; nor may a runtime be dropped there, not even with a closure that
        // finds no thread.
        let runtime = ManuallyDrop::new(runtime);
        let end = move || {
            let runtime = ManuallyDrop::into_inner(runtime);
            let _ = runtime.block_on(async { tokio::time::timeout(END, remote.end()).await });
            runtime.shutdown_background();
        };
        if let Err(error) = std::thread::Builder::new().name("uncork-end".into()).spawn(end) {
            tracing::warn!(%error, "a model's runner is left as it is: no thread is to be had");
        }
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
        let runtime = runtime(name, threads)?;
        Ok(Away(Arc::new(Inner { remote, runtime: Some(runtime) })))
    }

    /// The same with a runner that is begun on those threads, where that succeeds.
    pub(super) fn begin<R: AnyRemote + 'static, E: Send + 'static>(
        name: &str,
        begin: impl Future<Output = Result<R, E>> + Send + 'static,
        threads: usize,
    ) -> std::io::Result<Result<(Away, Arc<R>), E>> {
        let runtime = runtime(name, threads)?;
        let (done, begun) = mpsc::channel();
        runtime.spawn(async move { done.send(begin.await) });
        match begun.recv().map_err(|_| std::io::Error::other("it panicked"))? {
            Ok(remote) => {
                let remote = Arc::new(remote);
                Ok(Ok((Away(Arc::new(Inner { remote: Arc::clone(&remote) as _, runtime: Some(runtime) })), remote)))
            }
            Err(error) => {
                runtime.shutdown_background();
                Ok(Err(error))
            }
        }
    }

    /// Why no batch can be run at present.
    pub(super) fn trouble(&self) -> Option<String> {
        self.0.remote.trouble()
    }

    /// Runs a future on the runner's threads.
    pub(super) fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.runtime.as_ref().expect("it is taken when the last handle is dropped").spawn(future)
    }

    /// See [`Remote::hooks`].
    pub(super) fn hooks(&self) -> Hooks {
        self.0.remote.hooks()
    }

    /// See [`Remote::takes_whole`].
    pub(super) fn takes_whole(&self) -> bool {
        self.0.remote.takes_whole()
    }

    /// See [`Remote::prepare`].
    pub(super) fn prepare(&self, request: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.0.remote).prepare(request)
    }

    /// See [`Remote::finish`].
    pub(super) fn finish(&self, outputs: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.0.remote).finish(outputs)
    }

    /// See [`Remote::watched`].
    pub(super) fn watched(&self, watcher: Watcher) {
        self.0.remote.watched(watcher);
    }

    /// See [`Remote::ready`].
    pub(super) async fn ready(&self) {
        if self.trouble().is_some() {
            Arc::clone(&self.0.remote).ready().await;
        }
    }

    /// See [`Remote::run`].
    pub(super) fn run(&self, batch: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.0.remote).run(batch)
    }

    /// See [`Remote::rehearse`].
    pub(super) fn rehearse(&self, batch: Tensors) -> BoxFuture<'static, Outputs> {
        Arc::clone(&self.0.remote).rehearse(batch)
    }

    /// Waits for the answer of a future of the runner's. The thread that waits does nothing else meanwhile.
    fn wait(&self, answer: BoxFuture<'static, Outputs>) -> Outputs {
        let (done, answered) = mpsc::channel();
        self.spawn(async move { done.send(answer.await) });
        answered.recv().unwrap_or_else(|_| Err(RunnerError::Failed("the runner panicked".into())))
    }
}

fn runtime(name: &str, threads: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
}

/// To whoever loads, measures and checks models, it is a runner like others, that one waits for.
impl Runner for Away {
    fn signature(&self) -> &Signature {
        self.0.remote.signature()
    }

    fn run(&mut self, batch: Tensors) -> Outputs {
        self.wait(Away::run(self, batch))
    }

    fn rehearse(&mut self, batch: Tensors) -> Outputs {
        self.wait(Away::rehearse(self, batch))
    }

    fn may_refuse(&self) -> bool {
        self.0.remote.may_refuse()
    }
}
