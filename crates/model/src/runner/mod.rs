//! Executors of models: what a batch of rows is handed to.

mod device;
mod name;
mod shapes;
mod signature;
pub mod synthetic;

pub use device::{Device, DeviceError};
pub use name::malformed_name;
pub use shapes::{BatchAxes, Shapes};
pub use signature::{Announced, Rows, Signature, SignatureError, TensorSpec};

use crate::tensor::Tensors;

/// Why a batch has no outputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The model or its device failed. The text is for the operator's log and never reaches a caller.
    #[error("{0}")]
    Failed(String),
    /// Some row holds what the model has no answer to, as an index beyond the end of a table. The text is for whoever sent
    /// it, so it speaks of the values alone. Rows of other callers in the batch are answered all the same.
    #[error("{0}")]
    Input(String),
    /// These rows of the batch, by their places from 0, have no answer, each with what is wrong with it, in words for whoever
    /// sent it. All others are run again at once, so whoever can name rows should name all of them.
    #[error("{} rows have no answer", .0.len())]
    Rows(Vec<(usize, String)>),
    /// Something went wrong with some row, and it is nobody's inputs that are to blame. The text is for the operator's log.
    /// Rows of other callers in the batch are answered all the same.
    #[error("{0}")]
    Row(String),
    /// The same of these rows, by their places from 0. All others are run again at once.
    #[error("{} rows failed", .0.len())]
    FailedRows(Vec<(usize, String)>),
    /// Some row needs what other batches have at the moment, such as memory. The text is for the operator's log. Rows of other callers in the
    /// batch are answered all the same.
    #[error("{0}")]
    Busy(String),
    /// Whoever runs the model is not there at the moment, and will be. The text is for the operator's log.
    #[error("{0}")]
    Absent(String),
}

/// One executor of a model. Each lives on a thread of its own and sees one batch at a time.
pub trait Runner: Send {
    /// Names, types and shapes that every batch follows.
    fn signature(&self) -> &Signature;

    /// Runs `batch`, whose tensors have passed [`Signature::check`], and returns the outputs, one row for each input
    /// row, in order. Any outputs that break the signature fail the batch; so does a panic, after which the runner
    /// is thrown away and built anew.
    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError>;

    /// Runs `batch` as [`run`](Self::run) does, where nobody waits for the answer and the rows are made up, to warm up or to
    /// measure. A model that knows some values by name alone takes others here, which it would refuse to a caller.
    fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.run(batch)
    }

    /// Whether [`run`](Self::run) can fail for some rows of a batch alone: with [`RunnerError::Input`], [`Rows`](RunnerError::Rows),
    /// [`Row`](RunnerError::Row) or [`FailedRows`](RunnerError::FailedRows). If so, a copy of each batch's inputs is kept while it runs, to run
    /// others' rows again.
    fn may_refuse(&self) -> bool {
        true
    }

    /// Whether [`run`](Self::run) also takes a request that was kept whole, as [`Signature::check_whole`] gives it: one at a
    /// time, each tensor in the model's own shape behind an axis 0 of length 1. The outputs are of that form, too.
    fn takes_whole_requests(&self) -> bool {
        false
    }

    /// Whether a request may give its outputs another form than the signature has, such as another number of axes.
    /// A runner that says so [takes whole requests](Self::takes_whole_requests), and a copy of each batch's inputs is kept
    /// while it runs, to run such a request again as a whole.
    fn may_change_form(&self) -> bool {
        false
    }
}

/// Which hooks a model has beside its batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hooks {
    /// In front of the model.
    pub prepare: bool,
    /// Behind it.
    pub finish: bool,
}

/// The processes behind a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crew {
    /// Those that are ready.
    pub ready: usize,
    /// How many have ended unasked since the start.
    pub ended: u64,
}

/// Hears how many processes there are.
pub type Watcher = Box<dyn Fn(Crew) + Send + Sync>;

/// An executor of a model that is somewhere else, as in another process or on another server: it answers later, and takes
/// as many batches at once as the model has runners.
///
/// A batch that is given up, because it ran for too long, is a future that is dropped.
pub trait Remote: Send + Sync {
    /// Names, types and shapes that every batch follows.
    fn signature(&self) -> &Signature;

    /// Runs `batch` under the terms of [`Runner::run`].
    fn run(&self, batch: Tensors) -> impl Future<Output = Result<Tensors, RunnerError>> + Send;

    /// Runs `batch` under the terms of [`Runner::rehearse`].
    fn rehearse(&self, batch: Tensors) -> impl Future<Output = Result<Tensors, RunnerError>> + Send {
        self.run(batch)
    }

    /// The same as [`Runner::may_refuse`].
    fn may_refuse(&self) -> bool {
        true
    }

    /// Returns when a batch can be begun, or after some time when none can: what is waited for here is not the batch's time.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Why no batch can be run at present, if that is so: the model is not ready meanwhile. For the operator.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Which hooks it has: requests and answers go through those, each on its own, beside running batches.
    fn hooks(&self) -> Hooks {
        Hooks::default()
    }

    /// Whether the `instances` of a body are its own to read, where its requests are opaque: to the server each body is one row.
    fn takes_whole(&self) -> bool {
        false
    }

    /// Runs the hook in front of the model on one request: what comes back, of as many rows, is run in its place.
    fn prepare(&self, request: Tensors) -> impl Future<Output = Result<Tensors, RunnerError>> + Send {
        std::future::ready(Ok(request))
    }

    /// Runs the hook behind the model on the outputs of one request.
    fn finish(&self, outputs: Tensors) -> impl Future<Output = Result<Tensors, RunnerError>> + Send {
        std::future::ready(Ok(outputs))
    }

    /// Tells `watcher` of its workers, now and whenever that changes.
    fn watched(&self, watcher: Watcher) {
        drop(watcher);
    }

    /// Nothing will be asked of it any more. Returns when it has left nothing behind.
    fn end(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
