//! Which version of a model answers whom: labels, shares, and a shadow that answers nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model::Model;
use super::{Registry, Table};
use crate::error::Error;

/// What is said of the versions of one model beside each version's own settings. Versions are decimal strings; one that is not
/// served counts as not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// Versions by names that callers may use instead.
    pub labels: BTreeMap<String, String>,
    /// The part of each version, in proportion to the others', of the requests that name no version. Without any, the highest
    /// version answers them.
    pub weights: BTreeMap<String, u32>,
    /// The version that gets copies of what the others answer, and answers nobody.
    pub shadow: Option<String>,
}

/// The same, and how many requests were dealt.
#[derive(Debug, Default)]
pub(super) struct Dealer {
    pub(super) routes: Routes,
    dealt: AtomicU64,
}

impl Dealer {
    pub(super) fn new(routes: Routes) -> Dealer {
        Dealer { routes, dealt: AtomicU64::new(0) }
    }

    /// Which of `versions`, lowest first, answers a request that names none.
    fn deal<'a>(&self, versions: &'a [Arc<Model>]) -> Option<&'a Arc<Model>> {
        let weight = |model: &Arc<Model>| self.routes.weights.get(model.version()).copied().unwrap_or(0);
        let weights: Vec<u32> = versions.iter().map(weight).collect();
        let drawn = || drawn(&weights, scattered(self.dealt.fetch_add(1, Ordering::Relaxed)));
        match weights.iter().filter(|&&weight| weight > 0).count() {
            0 => versions.last(),
            _ => versions.get(drawn()?),
        }
    }
}

/// The place of the weight that a number falls into, where weights lie side by side in proportion.
fn drawn(weights: &[u32], number: u64) -> Option<usize> {
    let all: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    // From 0 to below the sum.
    let mut at = (u128::from(number) * all) >> 64;
    weights.iter().position(|&weight| {
        let is_here = at < u128::from(weight);
        at = at.saturating_sub(u128::from(weight));
        is_here
    })
}

/// A number that looks like chance for each `n`: callers who take turns must not meet the same version always. SplitMix64 (Steele,
/// Lea and Flood, 2014).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Registry {
    /// Says of all models which version answers whom; of those that are not named, the highest does.
    pub fn route(&self, routes: &BTreeMap<String, Routes>) {
        self.inner.table_to_write().route(routes);
    }

    /// The model that answers a request: in the version that it names, or in one that the shares of its versions fall on.
    /// Whoever has it keeps it, through all of the request. A shadow answers nobody.
    ///
    /// # Errors
    /// There is no such model.
    pub fn answering(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Error> {
        let table = self.inner.table();
        match table.dealers.get(name) {
            Some(dealer) if version.is_none() => {
                let versions: Vec<_> = table.answering(name).cloned().collect();
                dealer.deal(&versions).cloned().ok_or_else(|| table.unknown(name, None))
            }
            _ => table.model(name, version),
        }
    }

    /// The version that a label of the model stands for.
    pub fn labelled(&self, name: &str, label: &str) -> Option<String> {
        self.inner.table().dealers.get(name)?.routes.labels.get(label).cloned()
    }
}

impl Table {
    /// Says which version answers whom. Requests are dealt on where nothing has changed.
    pub(super) fn route(&mut self, routes: &BTreeMap<String, Routes>) {
        let mut before = std::mem::take(&mut self.dealers);
        let dealer = |(name, routes): (&String, &Routes)| {
            let known = before.remove(name).filter(|dealer| dealer.routes == *routes);
            (name.clone(), known.unwrap_or_else(|| Dealer::new(routes.clone())))
        };
        self.dealers = routes.iter().filter(|(_, routes)| **routes != Routes::default()).map(dealer).collect();
        self.cast();
    }

    /// Tells each model who gets copies of its requests.
    pub(super) fn cast(&self) {
        for model in self.models.iter() {
            let shadow = self.dealers.get(model.name()).and_then(|dealer| dealer.routes.shadow.as_deref());
            let shadow = shadow.filter(|shadow| *shadow != model.version());
            let is_shadow = |other: &&Arc<Model>| other.name() == model.name() && Some(other.version()) == shadow;
            model.copy_to(self.models.iter().find(is_shadow));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many draws fall on each weight.
    fn counts(weights: &[u32], draws: u64) -> Vec<u64> {
        let mut counts = vec![0; weights.len()];
        (0..draws).for_each(|n| counts[drawn(weights, scattered(n)).unwrap()] += 1);
        counts
    }

    #[test]
    fn shares_are_those_of_the_weights_as_far_as_chance_allows() {
        for weights in [&[90, 10][..], &[1, 1, 1], &[999, 1], &[0, 5, 0, 3], &[u32::MAX, u32::MAX]] {
            let (draws, all) = (100_000, weights.iter().map(|&w| f64::from(w)).sum::<f64>());
            for (count, &weight) in counts(weights, draws).into_iter().zip(weights) {
                let (n, p) = (draws as f64, f64::from(weight) / all);
                // Five standard deviations of a binomial distribution.
                let most = 5.0 * (n * p * (1.0 - p)).sqrt();
                assert!((count as f64 - n * p).abs() <= most, "{count} of {draws} at {p}");
            }
        }
    }

    #[test]
    fn callers_who_take_turns_do_not_meet_the_same_version_always() {
        for step in [2, 3, 10] {
            let every = |n: u64| drawn(&[50, 50], scattered(n * step)).unwrap();
            let first = (0..10_000).filter(|&n| every(n) == 0).count();
            assert!((4_750..5_250).contains(&first), "{first}");
        }
    }

    #[test]
    fn the_ends_of_all_numbers_fall_on_the_ends_of_the_weights() {
        assert_eq!((drawn(&[3, 4], 0), drawn(&[3, 4], u64::MAX)), (Some(0), Some(1)));
        assert_eq!((drawn(&[0, 4], 0), drawn(&[4, 0], u64::MAX)), (Some(1), Some(0)));
        assert_eq!(drawn(&[], 7), None);
    }
}
