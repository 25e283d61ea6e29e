//! Models that are loaded beside those that are served, and take their places in one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::Model;
use super::spec::ModelSpec;
use super::{Leaving, LoadError, Registry, Routes};

/// A model that is loaded and warm, and not served. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Staged(pub(super) Model);

impl Staged {
    /// See [`Model::memory`].
    pub fn memory(&self) -> u64 {
        self.0.memory()
    }

    /// Its name and version.
    pub fn key(&self) -> (&str, &str) {
        (self.0.name(), self.0.version())
    }
}

impl ModelSpec {
    /// Bytes of memory that the model takes at least, as far as that can be told before it is loaded.
    pub fn least_memory(&self) -> u64 {
        super::memory::least(self)
    }
}

impl Registry {
    /// Loads a model and warms it up without serving it. Blocks for seconds; must be called within a tokio runtime. Where it
    /// names a pool that only one of `beside` is in, it joins that one's.
    ///
    /// # Errors
    /// It cannot be loaded, or it cannot keep its latency cap and `is_strict`.
    pub fn stage(&self, spec: ModelSpec, is_strict: bool, beside: &[Staged]) -> Result<Staged, LoadError> {
        let _alone = self.inner.alone();
        self.inner.start(spec, is_strict, beside).map(Staged)
    }

    /// Serves all of `staged` from now on, each in the place of the one of its name and version if there is one, and those of
    /// `gone` no more, and says who answers whom where that is given: whoever asks sees all of it or nothing. What is served no
    /// more comes back.
    pub fn exchange(
        &self,
        staged: Vec<Staged>,
        gone: &[(String, String)],
        routes: Option<&BTreeMap<String, Routes>>,
    ) -> Vec<Leaving> {
        let left = self.inner.put_all(staged.into_iter().map(|Staged(model)| model).collect(), gone, routes);
        left.into_iter().map(Leaving).collect()
    }

    /// Says no more that these are being loaded.
    pub fn withdraw(&self, announced: &[(String, String)]) {
        self.inner.table_to_write().coming.retain(|coming| !announced.contains(coming));
    }
}

impl super::Inner {
    /// Serves these, each in the place of the one of its name and version, and those of `gone` no more.
    pub(super) fn put_all(
        &self,
        models: Vec<Model>,
        gone: &[(String, String)],
        routes: Option<&BTreeMap<String, Routes>>,
    ) -> Vec<Arc<Model>> {
        let mut table = self.table_to_write();
        let mut left = Vec::new();
        let is_gone = |model: &Arc<Model>| {
            gone.iter().any(|(name, version)| (name.as_str(), version.as_str()) == (model.name(), model.version()))
        };
        let (go, mut stay): (Vec<_>, Vec<_>) = table.models.iter().cloned().partition(is_gone);
        left.extend(go);
        for model in models {
            model.show(&self.metrics);
            let own = |(name, version): &(String, String)| {
                (name.as_str(), version.as_str()) == (model.name(), model.version())
            };
            table.loading.retain(|other| !own(other));
            table.coming.retain(|other| !own(other));
            let at = stay.partition_point(|other| super::order(other, &model).is_lt());
            if stay.get(at).is_some_and(|other| super::order(other, &model).is_eq()) {
                left.push(stay.remove(at));
            }
            stay.insert(at, Arc::new(model));
        }
        table.models = stay.into();
        match routes {
            Some(routes) => table.route(routes),
            None => table.cast(),
        }
        left
    }
}
