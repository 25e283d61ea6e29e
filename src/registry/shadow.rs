//! A version that gets copies of what another is asked, and answers nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use super::model::Model;
use crate::batcher::Terms;
use crate::error::Outcome;
use crate::metrics::Copied;
use crate::tensor::Tensors;

/// Who gets copies of a model's requests.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Most models have nobody: then there is nothing to lock.
    is_there: AtomicBool,
    to: RwLock<Weak<Model>>,
}

impl Copies {
    fn shadow(&self) -> Option<Arc<Model>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.to.read().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl Model {
    /// From now on `shadow` gets copies of its requests, or nobody.
    pub(super) fn copy_to(&self, shadow: Option<&Arc<Model>>) {
        *self.copies.to.write().unwrap_or_else(PoisonError::into_inner) =
            shadow.map(Arc::downgrade).unwrap_or_default();
        self.copies.is_there.store(shadow.is_some(), Ordering::Release);
    }

    /// Hands a copy of a request on, where that costs nobody anything: while no request waits for this model nor one for the
    /// shadow.
    pub(super) fn copy(&self, inputs: &Tensors) {
        let Some(shadow) = self.copies.shadow() else { return };
        let is_busy = self.waiting() > 0 || shadow.waiting() > 0;
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !is_busy => drop(runtime.spawn(rehearse(shadow, inputs.clone()))),
            _ => shadow.count_copy(Copied::Dropped),
        }
    }
}

/// Has the shadow answer, and forgets what it says.
async fn rehearse(shadow: Arc<Model>, inputs: Tensors) {
    let copied = match shadow.answer(inputs, Terms::now()).await {
        Ok(_) => Copied::Answered,
        Err(error) if error.outcome() == Outcome::Failed => Copied::Failed,
        Err(error) if error.outcome() == Outcome::Invalid => Copied::Failed,
        Err(_) => Copied::Refused,
    };
    shadow.count_copy(copied);
}
