//! What to load and what to let go, decided from what is seen and what is served.
//!
//! A version is let go when all that should be served are: nothing is taken away from a model before its successor is there, and
//! a version that cannot be loaded leaves the old one serving.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Which versions of a model are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// So many of the highest.
    Latest(NonZeroUsize),
    /// Every one.
    All,
    /// These.
    Named(BTreeSet<u64>),
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::Latest(NonZeroUsize::MIN)
    }
}

impl Policy {
    /// Those of `candidates` that are to be served, the highest first.
    pub(super) fn pick(&self, candidates: impl DoubleEndedIterator<Item = u64>) -> Vec<u64> {
        let falling = candidates.rev();
        match self {
            Policy::Latest(count) => falling.take(count.get()).collect(),
            Policy::All => falling.collect(),
            Policy::Named(named) => falling.filter(|version| named.contains(version)).collect(),
        }
    }
}

/// What tells one state of a version's files from another.
pub(super) type Stamp = u64;

/// What is known of a version that is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its files are still being written, as far as can be told.
    Fresh,
    /// It may be loaded.
    Settled,
    /// It could not be loaded, as its files are.
    Broken,
}

/// A model as its folder is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// What its folder says of it cannot be read: nothing is changed.
    Unclear,
    /// These versions, under this policy.
    Clear(Policy, BTreeMap<u64, (Stamp, State)>),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Load this version, in the place of what is served under its number if there is such.
    Load(u64),
    /// Serve this version no more.
    LetGo(u64),
}

/// What is served of each model, with the stamps that the versions had when they were loaded.
pub(super) type Serving = BTreeMap<String, BTreeMap<u64, Stamp>>;

/// What is to be done now, by model. Ask again when it is done: what follows depends on what could be loaded.
pub(super) fn plan(seen: &BTreeMap<String, Seen>, serving: &Serving) -> Vec<(String, Change)> {
    let names: BTreeSet<&String> = seen.keys().chain(serving.keys()).collect();
    let none = BTreeMap::new();
    let of_model = |name: &String| {
        let changes = changes(seen.get(name), serving.get(name).unwrap_or(&none));
        changes.into_iter().map(|change| (name.clone(), change)).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(of_model).collect()
}

fn changes(seen: Option<&Seen>, serving: &BTreeMap<u64, Stamp>) -> Vec<Change> {
    let (policy, versions) = match seen {
        None => return serving.keys().map(|&version| Change::LetGo(version)).collect(),
        Some(Seen::Unclear) => return Vec::new(),
        Some(Seen::Clear(policy, versions)) => (policy, versions),
    };
    let can_serve = |(version, (_, state)): (&u64, &(Stamp, State))| {
        (*state == State::Settled || serving.contains_key(version)).then_some(*version)
    };
    let wanted = policy.pick(versions.iter().filter_map(can_serve));
    let is_to_load = |version: &u64| {
        let is_other = |(stamp, state): &(Stamp, State)| {
            *state == State::Settled && serving.get(version).is_none_or(|served| served != stamp)
        };
        versions.get(version).is_some_and(is_other)
    };
    let loads: Vec<Change> = wanted.iter().filter(|version| is_to_load(version)).map(|&v| Change::Load(v)).collect();
    let are_all_there = !wanted.is_empty() && wanted.iter().all(|version| serving.contains_key(version));
    if !are_all_there {
        return loads;
    }
    let too_many = serving.keys().filter(|version| !wanted.contains(version));
    loads.into_iter().chain(too_many.map(|&version| Change::LetGo(version))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clear(policy: Policy, versions: &[(u64, Stamp, State)]) -> Seen {
        Seen::Clear(policy, versions.iter().map(|&(version, stamp, state)| (version, (stamp, state))).collect())
    }

    fn of(seen: Option<Seen>, serving: &[(u64, Stamp)]) -> Vec<Change> {
        changes(seen.as_ref(), &serving.iter().copied().collect())
    }

    const LATEST: Policy = Policy::Latest(NonZeroUsize::MIN);

    #[test]
    fn a_new_version_is_loaded_beside_the_old_one_which_goes_when_it_is_there() {
        let both = || Some(clear(LATEST, &[(1, 10, State::Settled), (2, 20, State::Settled)]));
        assert_eq!(of(both(), &[(1, 10)]), [Change::Load(2)]);
        assert_eq!(of(both(), &[(1, 10), (2, 20)]), [Change::LetGo(1)]);
        assert_eq!(of(both(), &[(2, 20)]), []);
    }

    #[test]
    fn a_version_that_is_still_written_or_broken_leaves_the_old_one() {
        for state in [State::Fresh, State::Broken] {
            let seen = || Some(clear(LATEST, &[(1, 10, State::Settled), (2, 20, state)]));
            assert_eq!(of(seen(), &[(1, 10)]), []);
            assert_eq!(of(seen(), &[]), [Change::Load(1)], "and a server that starts serves that one");
            // Its own folder may have gone meanwhile.
            assert_eq!(of(Some(clear(LATEST, &[(2, 20, state)])), &[(1, 10)]), []);
        }
    }

    #[test]
    fn changed_files_of_a_served_version_are_loaded_in_its_place() {
        let seen = |state| Some(clear(LATEST, &[(1, 11, state)]));
        assert_eq!(of(seen(State::Settled), &[(1, 10)]), [Change::Load(1)]);
        for state in [State::Fresh, State::Broken] {
            assert_eq!(of(seen(state), &[(1, 10)]), []);
        }
    }

    #[test]
    fn a_removed_folder_and_one_that_cannot_be_read_are_two_things() {
        assert_eq!(of(None, &[(1, 10), (2, 20)]), [Change::LetGo(1), Change::LetGo(2)]);
        assert_eq!(of(Some(Seen::Unclear), &[(1, 10)]), []);
    }

    #[test]
    fn all_and_named_versions() {
        let versions = [(1, 10, State::Settled), (2, 20, State::Settled), (3, 30, State::Settled)];
        let all = Some(clear(Policy::All, &versions));
        assert_eq!(of(all, &[(2, 20)]), [Change::Load(3), Change::Load(1)]);
        let named = || Some(clear(Policy::Named([1, 3].into()), &versions));
        assert_eq!(of(named(), &[(2, 20)]), [Change::Load(3), Change::Load(1)]);
        assert_eq!(of(named(), &[(1, 10), (2, 20), (3, 30)]), [Change::LetGo(2)]);
        let two = NonZeroUsize::new(2).unwrap();
        assert_eq!(of(Some(clear(Policy::Latest(two), &versions)), &[(1, 10), (2, 20)]), [Change::Load(3)]);
    }

    fn policies() -> impl Strategy<Value = Policy> {
        prop_oneof![
            (1usize..4).prop_map(|n| Policy::Latest(NonZeroUsize::new(n).unwrap())),
            Just(Policy::All),
            prop::collection::btree_set(0u64..5, 0..4).prop_map(Policy::Named),
        ]
    }

    fn states() -> impl Strategy<Value = State> {
        prop_oneof![Just(State::Fresh), Just(State::Settled), Just(State::Broken)]
    }

    fn sights() -> impl Strategy<Value = Option<Seen>> {
        let versions = prop::collection::btree_map(0u64..5, (0u64..3, states()), 0..5);
        let clear = (policies(), versions).prop_map(|(policy, versions)| Some(Seen::Clear(policy, versions)));
        prop_oneof![1 => Just(None), 1 => Just(Some(Seen::Unclear)), 8 => clear]
    }

    proptest! {
        /// Whatever is seen and served, and whatever fails to load: it comes to an end, nothing broken or half-written is loaded,
        /// nothing wanted is let go, and a model that is still seen is not left without a version.
        #[test]
        fn a_plan_comes_to_an_end_and_leaves_nobody_without_an_answer(
            seen in sights(),
            serving in prop::collection::btree_map(0u64..5, 0u64..3, 0..4),
            fails in prop::collection::btree_set(0u64..5, 0..5),
        ) {
            let (mut seen, mut serving) = (seen, serving);
            let had = !serving.is_empty();
            for round in 0.. {
                let changes = changes(seen.as_ref(), &serving);
                if changes.is_empty() {
                    break;
                }
                prop_assert!(round < 20, "it goes on for ever");
                for change in changes {
                    match (change, &mut seen) {
                        (Change::Load(version), Some(Seen::Clear(_, versions))) => {
                            let (stamp, state) = versions.get_mut(&version).expect("it is seen");
                            prop_assert_eq!(*state, State::Settled);
                            prop_assert_ne!(serving.get(&version), Some(&*stamp), "it is served already");
                            match fails.contains(&version) {
                                true => *state = State::Broken,
                                false => drop(serving.insert(version, *stamp)),
                            }
                        }
                        (Change::Load(_), _) => prop_assert!(false, "it is not seen"),
                        (Change::LetGo(version), _) => prop_assert!(serving.remove(&version).is_some()),
                    }
                    prop_assert!(!had || seen.is_none() || !serving.is_empty());
                }
            }
            match &seen {
                None => prop_assert!(serving.is_empty()),
                Some(Seen::Unclear) => {}
                Some(Seen::Clear(policy, versions)) => {
                    let good = versions.iter().filter(|(_, (_, state))| *state == State::Settled);
                    let good = policy.pick(good.map(|(&version, _)| version));
                    let highest = good.first().copied().unwrap_or(0);
                    if let Some(most) = serving.keys().next_back() {
                        prop_assert!(good.is_empty() || *most >= highest, "{good:?} {serving:?}");
                    }
                    if versions.values().all(|(_, state)| *state == State::Settled) && !good.is_empty() {
                        let rising: Vec<u64> = good.into_iter().rev().collect();
                        prop_assert_eq!(serving.keys().copied().collect::<Vec<_>>(), rising);
                    }
                }
            }
        }
    }
}
