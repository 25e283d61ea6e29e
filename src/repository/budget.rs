//! A bound on the memory of all models together, and what is let go so that one more fits. Pure.

use std::time::SystemTime;

/// A bound on the memory of all models that are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes that they take together, by their weights and full batches; `None`: as many as there are.
    pub max_bytes: Option<u64>,
    /// Whether models make room for one that is loaded, those that were not asked for longest going first.
    pub unload_least_used: bool,
}

/// A model that is served: all its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// When it answered last, or else when it was loaded.
    pub(super) used: SystemTime,
    /// Whether it may be let go.
    pub(super) may_go: bool,
}

impl Budget {
    /// Names of the models to let go so that one of so many bytes fits beside the others. The error has the numbers.
    pub(super) fn make_room(&self, bytes: u64, mut tenants: Vec<Tenant>) -> Result<Vec<String>, String> {
        let Some(most) = self.max_bytes else { return Ok(Vec::new()) };
        let taken: u64 = tenants.iter().map(|tenant| tenant.bytes).sum();
        let mut missing = (taken + bytes).saturating_sub(most);
        tenants.sort_by_key(|tenant| tenant.used);
        let can_go: u64 = tenants.iter().filter(|tenant| tenant.may_go).map(|tenant| tenant.bytes).sum();
        if missing > 0 && (!self.unload_least_used || missing > can_go) {
            return Err(self.refusal(bytes, most, taken, &tenants));
        }
        let mut gone = Vec::new();
        for Tenant { name, bytes, .. } in tenants.into_iter().filter(|tenant| tenant.may_go && tenant.bytes > 0) {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(bytes);
            gone.push(name);
        }
        Ok(gone)
    }

    fn refusal(&self, bytes: u64, most: u64, taken: u64, tenants: &[Tenant]) -> String {
        let mut shown: Vec<&Tenant> = tenants.iter().collect();
        shown.sort_by_key(|tenant| std::cmp::Reverse(tenant.bytes));
        let most_shown = 5;
        let names: Vec<String> = shown
            .iter()
            .take(most_shown)
            .map(|tenant| format!("{} {}", tenant.name, megabytes(tenant.bytes)))
            .collect();
        let others = shown.len().saturating_sub(most_shown);
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        let of = if names.is_empty() { String::new() } else { format!(" ({}{others})", names.join(", ")) };
        let (it, bound) = (megabytes(bytes), megabytes(most));
        if bytes > most {
            return format!(
                "it takes {it}, alone more than max_models_bytes, {bound}: raise the bound; with fewer runners or a smaller \
                 max_batch_size it may take less"
            );
        }
        // No more advice than helps.
        let can_go: u64 = tenants.iter().filter(|tenant| tenant.may_go).map(|tenant| tenant.bytes).sum();
        let way = if can_go > 0 { "unload another" } else { "serve fewer models or versions" };
        let is_cured = !self.unload_least_used && taken + bytes <= most + can_go;
        let or = if is_cured { ", set unload_least_used = true" } else { "" };
        format!(
            "it takes {it} and the others take {}{of}: together more than max_models_bytes, {bound}; {way}{or} or raise the bound",
            megabytes(taken)
        )
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn tenant(name: &str, megabytes: u64, used: u64, may_go: bool) -> Tenant {
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        Tenant { name: name.into(), bytes: megabytes * 1_000_000, used, may_go }
    }

    fn budget(megabytes: u64, unload_least_used: bool) -> Budget {
        Budget { max_bytes: Some(megabytes * 1_000_000), unload_least_used }
    }

    const MB: u64 = 1_000_000;

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let tenants = vec![tenant("small", 2, 1, true), tenant("large", 90, 2, true)];
        assert_eq!(budget(100, false).make_room(8 * MB, tenants.clone()), Ok(vec![]));
        let why = budget(100, false).make_room(9 * MB, tenants.clone()).unwrap_err();
        for words in ["9.0 MB", "92.0 MB (large 90.0 MB, small 2.0 MB)", "100.0 MB", "unload_least_used"] {
            assert!(why.contains(words), "{why}");
        }
        assert_eq!(Budget::default().make_room(u64::MAX / 2, tenants), Ok(vec![]), "there is no bound");
    }

    #[test]
    fn what_was_not_asked_for_longest_goes_first_and_no_more_than_is_needed() {
        let tenants = vec![tenant("new", 30, 3, true), tenant("old", 30, 1, true), tenant("kept", 30, 0, false)];
        assert_eq!(budget(100, true).make_room(10 * MB, tenants.clone()), Ok(vec![]));
        assert_eq!(budget(100, true).make_room(11 * MB, tenants.clone()), Ok(vec!["old".to_owned()]));
        assert_eq!(budget(100, true).make_room(41 * MB, tenants.clone()), Ok(vec!["old".to_owned(), "new".to_owned()]));
        assert!(budget(100, true).make_room(71 * MB, tenants).is_err());
    }

    #[test]
    fn who_is_refused_gets_no_advice_that_does_not_help() {
        let go = || vec![tenant("a", 30, 1, true), tenant("kept", 60, 0, false)];
        let stay = || vec![tenant("a", 30, 1, false), tenant("kept", 60, 0, false)];
        let (unload, fewer) = ("; unload another or raise", "; serve fewer models or versions or raise");
        let alone = "it takes 101.0 MB, alone more than max_models_bytes, 100.0 MB: raise the bound;";
        for (tenants, megabytes, may_unload, words) in [
            (go(), 40, false, "; unload another, set unload_least_used = true or raise"),
            (go(), 41, false, unload),
            (go(), 41, true, unload),
            (stay(), 40, false, fewer),
            (stay(), 40, true, fewer),
            (go(), 101, false, alone),
            (go(), 101, true, alone),
        ] {
            let why = budget(100, may_unload).make_room(megabytes * MB, tenants).unwrap_err();
            assert!(why.contains(words), "{megabytes} {may_unload}: {why}");
        }
    }

    proptest! {
        #[test]
        fn it_fits_behind_or_nothing_goes(
            sizes in prop::collection::vec((0u64..50, 0u64..9, any::<bool>()), 0..8),
            most in 0u64..150,
            new in 0u64..80,
            may_unload in any::<bool>(),
        ) {
            let named = |(i, &(size, used, may_go)): (usize, &(u64, u64, bool))| tenant(&i.to_string(), size, used, may_go);
            let tenants: Vec<Tenant> = sizes.iter().enumerate().map(named).collect();
            if let Ok(gone) = budget(most, may_unload).make_room(new * MB, tenants.clone()) {
                let stays = tenants.iter().filter(|tenant| !gone.contains(&tenant.name));
                let left: u64 = stays.map(|tenant| tenant.bytes).sum();
                prop_assert!(left + new * MB <= most * MB);
                prop_assert!(tenants.iter().all(|tenant| tenant.may_go || !gone.contains(&tenant.name)));
                prop_assert!(may_unload || gone.is_empty());
            }
        }
    }
}
