//! What the server's own metrics say: its models, their caps, and the batches that it ran.

use std::collections::BTreeMap;

use super::place::{Place, Url};

const BATCHES: &str = "uncork_adaptive_batch_size_bucket";
const MAX_LATENCY: &str = "uncork_max_latency_seconds";

/// A line of Prometheus' text format.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// The metrics of one moment, as far as they are used here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    samples: Vec<Sample>,
}

impl Exposition {
    /// The server's metrics, if it has any of uncork's.
    pub fn of(place: &Place, url: &Url, headers: &[(String, String)]) -> Option<Exposition> {
        let (status, body) = place.ask("GET", &url.below("/metrics"), headers, None).ok()?;
        let exposition = Exposition::read(&String::from_utf8_lossy(&body));
        (status == 200 && !exposition.samples.is_empty()).then_some(exposition)
    }

    fn read(text: &str) -> Exposition {
        let known = |line: &&str| line.starts_with(BATCHES) || line.starts_with(MAX_LATENCY);
        Exposition { samples: text.lines().filter(known).filter_map(sample).collect() }
    }

    /// The names of all models.
    pub fn models(&self) -> Vec<String> {
        self.samples.iter().filter_map(|sample| sample.label("model").map(str::to_owned)).collect()
    }

    /// A model's latency cap in seconds.
    pub fn max_latency_seconds(&self, model: &str) -> Option<f64> {
        let of = |sample: &&Sample| sample.name == MAX_LATENCY && sample.label("model") == Some(model);
        // Of several versions the highest answers, unless others are asked for.
        let version = |sample: &&Sample| sample.label("version").and_then(|version| version.parse::<u64>().ok());
        self.samples.iter().filter(of).max_by_key(version).map(|sample| sample.value)
    }

    /// How many batches of a model had at most so many rows, by that number; infinity as the last.
    fn batches(&self, model: &str) -> BTreeMap<u64, f64> {
        let mut up_to = BTreeMap::new();
        for sample in &self.samples {
            if sample.name == BATCHES && sample.label("model") == Some(model) {
                let edge = sample.label("le").and_then(|edge| edge.parse::<f64>().ok()).unwrap_or(f64::INFINITY);
                // Edges are whole numbers of rows; infinity becomes the largest.
                *up_to.entry(edge as u64).or_insert(0.0) += sample.value;
            }
        }
        up_to
    }

    /// The batches that a model ran since `earlier`: least rows, most rows and number of each kind that there were.
    pub fn batches_since(&self, earlier: &Exposition, model: &str) -> Vec<(u64, u64, u64)> {
        let (before, after) = (earlier.batches(model), self.batches(model));
        let (mut below, mut least) = (0.0, 1);
        let mut batches = Vec::new();
        for (most, count) in after {
            let count = count - before.get(&most).copied().unwrap_or(0.0);
            batches.push((least, most, (count - below).max(0.0).round() as u64));
            below = count;
            least = most.saturating_add(1);
        }
        let used = |of: &(u64, u64, u64)| of.2 > 0;
        let (first, last) = (batches.iter().position(used), batches.iter().rposition(used));
        match (first, last) {
            (Some(_), Some(last)) => batches[..=last].to_vec(),
            _ => Vec::new(),
        }
    }
}

/// `name{a="b",c="d"} 1`
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let mut found = Vec::new();
    let mut rest = labels.trim_end_matches('}');
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        found.push((name.trim_start_matches(',').trim().to_owned(), value));
        rest = &after[end + 1..];
    }
    Some(Sample { name: name.trim().to_owned(), labels: found, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(one: u64, two: u64, four: u64, more: u64) -> Exposition {
        let (two, four, more) = (one + two, one + two + four, one + two + four + more);
        let bucket = |le: &str, n| format!("{BATCHES}{{model=\"m \\\"1\\\"\",version=\"1\",le=\"{le}\"}} {n}\n");
        let text = bucket("1", one) + &bucket("2", two) + &bucket("4", four) + &bucket("+Inf", more);
        let cap =
            format!("# TYPE {MAX_LATENCY} gauge\n{MAX_LATENCY}{{model=\"m \\\"1\\\"\",version=\"1\"}} 0.05\nother 1\n");
        Exposition::read(&(text + &cap))
    }

    #[test]
    fn the_batches_of_a_run_are_the_difference_of_two_expositions() {
        let (before, after) = (of(10, 5, 1, 0), of(11, 5, 8, 0));
        assert_eq!(after.batches_since(&before, "m \"1\""), [(1, 1, 1), (2, 2, 0), (3, 4, 7)]);
        assert_eq!(after.batches_since(&after, "m \"1\""), []);
        assert_eq!(after.batches_since(&before, "other"), []);
    }

    #[test]
    fn models_and_their_caps_are_named() {
        assert_eq!(of(0, 0, 0, 0).max_latency_seconds("m \"1\""), Some(0.05));
        assert!(of(0, 0, 0, 0).models().iter().all(|model| model == "m \"1\""));
        assert_eq!(Exposition::read("{{{ \" = } x"), Exposition::default());
    }
}
