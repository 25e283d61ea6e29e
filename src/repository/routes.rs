//! Says in the log which versions of a model answer whom, once that has changed.

use super::Shelf;
use crate::registry::Routes;

impl Shelf {
    /// Logs what is another since this was called last.
    pub(super) fn tell_routes(&mut self) {
        let routes = self.all_routes();
        for (name, new) in &routes {
            if self.told_routes.get(name).unwrap_or(&Routes::default()) != new {
                tracing::info!(model = name, "from now on {}", said(new));
            }
        }
        let is_over = |(name, told): &(&String, &Routes)| {
            **told != Routes::default() && !routes.contains_key(*name) && self.is_configured(name)
        };
        for (name, _) in self.told_routes.iter().filter(is_over) {
            tracing::info!(model = name, "from now on {}", said(&Routes::default()));
        }
        self.told_routes = routes;
    }
}

/// `version 1 answers 90 of 100 requests and version 2 answers 10; label 'stable' is version 1`
fn said(routes: &Routes) -> String {
    let Routes { labels, weights, shadow } = routes;
    let all: u64 = weights.values().map(|weight| u64::from(*weight)).sum();
    let mut parts: Vec<String> = Vec::new();
    if weights.is_empty() {
        parts.push("its highest version answers whoever names none".to_owned());
    } else {
        let of_versions = weights.iter().map(|(version, weight)| format!("version {version} answers {weight}"));
        let of_versions: Vec<String> = of_versions.collect();
        parts.push(format!("of {all} requests that name none {}", of_versions.join(", ")));
    }
    parts.extend(labels.iter().map(|(label, version)| format!("'{label}' is version {version}")));
    parts.extend(shadow.iter().map(|version| format!("version {version} is a shadow")));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_said_of_versions_is_one_sentence() {
        let entry = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let routes = Routes {
            labels: [("stable", "1")].map(entry).into(),
            weights: [("1".to_owned(), 90), ("2".to_owned(), 10)].into(),
            shadow: Some("3".into()),
        };
        let words = "of 100 requests that name none version 1 answers 90, version 2 answers 10; 'stable' is version 1; \
                     version 3 is a shadow";
        assert_eq!(said(&routes), words);
        assert_eq!(said(&Routes::default()), "its highest version answers whoever names none");
    }
}
