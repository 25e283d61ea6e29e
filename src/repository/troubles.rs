//! What is not served, and why, in words.

use super::folder::VersionFolder;
use super::plan::Stamp;
use super::room::Why;
use super::{Inner, Shelf};
use crate::quote::{on_lines, on_one_line};

/// Most bytes of a reason: what a model's file says may be in it.
const MOST_REASON: usize = 4096;

/// A version that is not served though somebody may look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The model.
    pub name: String,
    /// Its version; empty where all are meant.
    pub version: String,
    /// Why, in a sentence without a path of this machine.
    pub reason: String,
    /// Whether it waits to be loaded by name: nothing is wrong with it.
    pub is_unloaded: bool,
}

/// Why nobody would answer.
pub(super) const MUTE: &str = "of its versions only the shadow is served, and a shadow answers nobody";

/// Why a version that is named is not served.
pub(super) fn absent(version: u64) -> String {
    format!("its settings ask for version {version}, and the model's folder has no such folder with files in it")
}

/// What has come of loading a model of which these versions are served, and these should be too and are not, with their reasons.
pub(super) fn not_all(served: &[String], failed: &[(String, String)]) -> String {
    let there = match served {
        [] => None,
        [only] => Some(format!("version {only} is served")),
        [others @ .., last] => Some(format!("versions {} and {last} are served", others.join(", "))),
    };
    let why = failed.iter().map(|(version, reason)| match version.as_str() {
        "" => reason.clone(),
        _ if served.contains(version) => {
            format!("version {version} is the one of before, and its files as they are now are not served: {reason}")
        }
        _ if served.is_empty() => format!("version {version}: {reason}"),
        _ => format!("version {version} is not: {reason}"),
    });
    there.into_iter().chain(why).collect::<Vec<_>>().join("; ")
}

impl Inner {
    /// Says that a version is not served, to whoever waits for it and in the log. The reason comes back without a path.
    pub(super) fn give_up(&self, name: &str, version: &str, reason: &str, at: Option<&VersionFolder>) -> String {
        self.registry.withdraw(&[(name.to_owned(), version.to_owned())]);
        self.registry.metrics().repository().failed.increment(1);
        let goes_on = match self.registry.versions(name).is_empty() {
            true => "",
            false => ", so what was served before is served on",
        };
        tracing::error!(model = name, version, "cannot be loaded{goes_on}: {}", on_lines(reason));
        let path = at.map(|at| format!("{}/", at.path.display()));
        let reason = path.map_or_else(|| without_path(reason), |path| reason.replace(&path, ""));
        on_one_line(&reason, MOST_REASON)
    }

    /// Takes down what is not served now.
    pub(super) fn note_troubles(&self, shelf: &Shelf) {
        let trouble = |name: &str, version: String, reason: &str| Trouble {
            name: name.to_owned(),
            version,
            reason: on_one_line(reason, MOST_REASON),
            is_unloaded: false,
        };
        // What others could make room for is no more broken than a model that was let go.
        let waits = |key| shelf.crowded_out.get(key) == Some(&Why::Later);
        let (waiting, broken): (Vec<_>, Vec<_>) = shelf.broken.iter().partition(|(key, _)| waits(*key));
        let of_version =
            |((name, version), (_, why)): (&(String, u64), &(Stamp, String))| trouble(name, version.to_string(), why);
        let waiting = waiting.into_iter().map(|own| Trouble { is_unloaded: true, ..of_version(own) });
        let broken = broken.into_iter().map(of_version);
        let unclear = shelf
            .described
            .iter()
            .filter_map(|(name, (_, described))| described.as_ref().err().map(|why| trouble(name, String::new(), why)));
        let absent = shelf.absent().map(|(name, version)| trouble(name, version.to_string(), &absent(version)));
        let mute = shelf.serving.keys().filter(|name| !shelf.answers(name));
        let mute = mute.map(|name| trouble(name, String::new(), MUTE));
        let unread = shelf.unread.iter().filter(|(name, _)| !shelf.serving.contains_key(*name));
        let unread = unread.map(|(name, why)| trouble(name, String::new(), why));
        let unloaded = shelf.unloaded.iter().flat_map(|(name, reason)| {
            let versions = shelf.would_serve(name);
            let versions = if versions.is_empty() { vec![String::new()] } else { versions };
            versions.into_iter().map(|version| Trouble { is_unloaded: true, ..trouble(name, version, reason) })
        });
        let is_unloaded = |own: &Trouble| shelf.unloaded.contains_key(&own.name);
        // Of these nobody has heard yet: no load has failed.
        let unheard: Vec<Trouble> = absent.chain(mute).filter(|own| !is_unloaded(own)).collect();
        let all = broken.chain(unclear).chain(unread).filter(|own| !is_unloaded(own));
        let mut all: Vec<Trouble> = all.chain(unheard.clone()).collect();
        self.registry.metrics().repository().broken.set(all.len() as f64);
        all.extend(unloaded);
        all.extend(waiting.filter(|own| !is_unloaded(own)));
        let before = std::mem::replace(&mut *self.troubles(), all);
        for Trouble { name, version, reason, .. } in unheard.iter().filter(|own| !before.contains(own)) {
            tracing::warn!(model = name, version, "{reason}");
        }
    }
}

impl Shelf {
    /// Whether that is not served for want of room alone, where models make room for each other.
    pub(super) fn wants_room(&self, trouble: &Trouble) -> bool {
        // Where the trouble is that a shadow is alone, one of the others may want it.
        let is_crowded_out = |(name, version): &(String, u64)| {
            *name == trouble.name && (trouble.version.is_empty() || version.to_string() == trouble.version)
        };
        let wants_room = self.unloaded.contains_key(&trouble.name) || self.crowded_out.keys().any(is_crowded_out);
        self.budget.unload_least_used && wants_room
    }
}

/// A file's path before a colon is left out.
fn without_path(reason: &str) -> String {
    match reason.split_once(": ") {
        Some((path, rest)) if path.contains('/') => rest.to_owned(),
        _ => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loads_a_model_is_told_what_is_served_of_it_and_what_is_not() {
        let versions = |names: &str| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (served, failed, told) in [
            ("", "2", "version 2: no room"),
            ("", "2 1", "version 2: no room; version 1: no room"),
            ("1", "2", "version 1 is served; version 2 is not: no room"),
            ("1 3 4", "2", "versions 1, 3 and 4 are served; version 2 is not: no room"),
            (
                "1",
                "1",
                "version 1 is served; version 1 is the one of before, and its files as they are now are not served: no room",
            ),
        ] {
            let failed: Vec<_> = versions(failed).into_iter().map(|version| (version, "no room".to_owned())).collect();
            assert_eq!(not_all(&versions(served), &failed), told);
        }
        assert_eq!(not_all(&[], &[(String::new(), MUTE.to_owned())]), MUTE);
    }
}
