//! Histograms that Prometheus calls native, whose buckets grow by a tenth or so, and the format that has room for them.
//!
//! Source: `metrics.proto` of Prometheus' client model
//! (<https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto>), of which the messages below are
//! the part that is written here. The exporter's own need a compiler of protobuf wherever uncork is built.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;

/// Buckets of each doubling, as a power of two.
const SCHEMA: i32 = 3;

/// Upper edges of the buckets from one up to the next power of two, without that one.
const EDGES: [f64; 1 << SCHEMA] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// Powers of two between which values have buckets of their own: a microsecond, and a million rows.
const DOUBLINGS: std::ops::Range<i32> = -20..20;

/// Counts of values by exponential buckets.
#[derive(Debug)]
pub(super) struct Exponential {
    /// Values up to the lowest edge, and then by bucket; the last has all that is beyond.
    counts: Box<[AtomicU64]>,
}

impl Exponential {
    /// No values yet.
    pub(super) fn new() -> Exponential {
        let buckets = DOUBLINGS.len() << SCHEMA;
        Exponential { counts: (0..=buckets).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a value.
    pub(super) fn record(&self, value: f64) {
        let at = index(value).saturating_sub(DOUBLINGS.start << SCHEMA).max(0) as usize;
        self.counts[at.min(self.counts.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The same as Prometheus has it: runs of buckets, and how much more each has than the one before.
    pub(super) fn write(&self, into: &mut Histogram) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (into.schema, into.zero_threshold) = (SCHEMA, f64::from(DOUBLINGS.start).exp2());
        into.zero_count = counts[0];
        into.sample_count = counts.iter().sum();
        let (mut end, mut last) = (0, 0);
        for (at, &count) in counts.iter().enumerate().skip(1).filter(|(_, count)| **count > 0) {
            let at = at as i32 + (DOUBLINGS.start << SCHEMA);
            match into.positive_span.last_mut() {
                Some(span) if end == at => span.length += 1,
                _ => into.positive_span.push(BucketSpan { offset: at - end, length: 1 }),
            }
            end = at + 1;
            into.positive_delta.push(count as i64 - last);
            last = count as i64;
        }
    }
}

/// The bucket of a value: that with the lowest edge of 2^(i/8) that is not below it.
fn index(value: f64) -> i32 {
    if value.is_nan() || value <= 0.0 {
        return i32::MIN;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    (exponent << SCHEMA) + EDGES.iter().filter(|&&edge| edge < fraction).count() as i32
}

/// A metric and all its series.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) help: String,
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Series>,
}

/// Kinds of metrics.
pub(super) const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
pub(super) const HISTOGRAM: i32 = 4;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Series {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(super) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(super) sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    pub(super) schema: i32,
    #[prost(double, tag = "6")]
    pub(super) zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    pub(super) zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub(super) cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub(super) upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    pub(super) exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl Exemplar {
    /// A value of this trace.
    pub(super) fn of(value: f64, trace: u128, at: Duration) -> Exemplar {
        let label = vec![LabelPair { name: "trace_id".into(), value: format!("{trace:032x}") }];
        let timestamp = Timestamp { seconds: at.as_secs() as i64, nanos: at.subsec_nanos() as i32 };
        Exemplar { label, value, timestamp: Some(timestamp) }
    }
}

/// Counters and gauges that stand in Prometheus' text.
pub(super) fn families(text: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for line in text.lines() {
        let head = |kind| line.strip_prefix(kind).and_then(|rest: &str| rest.split_once(' '));
        if let Some((name, help)) = head("# HELP ") {
            families.push(MetricFamily { name: name.into(), help: help.into(), ..MetricFamily::default() });
        } else if let Some((name, kind)) = head("# TYPE ") {
            if families.last().is_none_or(|family| family.name != name) {
                families.push(MetricFamily { name: name.into(), ..MetricFamily::default() });
            }
            if let Some(family) = families.last_mut() {
                family.kind = if kind == "counter" { COUNTER } else { GAUGE };
            }
        } else if let Some(family) = families.last_mut()
            && let Some((series, value)) = line.rsplit_once(' ')
            && let Ok(value) = value.parse()
        {
            let value = Some(Value { value });
            let (gauge, counter) = if family.kind == COUNTER { (None, value) } else { (value, None) };
            let inner = series.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}')).unwrap_or_default();
            family.metric.push(Series { label: labels(inner), gauge, counter, histogram: None });
        }
    }
    families
}

/// `name="value",…` as it stands between braces.
pub(super) fn labels(text: &str) -> Vec<LabelPair> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((name, behind)) = rest.split_once("=\"") {
        let (mut value, mut characters, mut end) = (String::new(), behind.char_indices(), behind.len());
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => value.extend(characters.next().map(|(_, escaped)| if escaped == 'n' { '\n' } else { escaped })),
                other => value.push(other),
            }
        }
        found.push(LabelPair { name: name.trim_start_matches(',').into(), value });
        rest = &behind[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many values of each bucket a reader of the message finds, by index.
    fn read(histogram: &Histogram) -> Vec<(i32, i64)> {
        let (mut found, mut at, mut count) = (Vec::new(), 0, 0);
        let mut deltas = histogram.positive_delta.iter();
        for span in &histogram.positive_span {
            at += span.offset;
            for _ in 0..span.length {
                count += deltas.next().unwrap();
                found.push((at, count));
                at += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found
    }

    #[test]
    fn a_value_is_in_the_bucket_whose_edges_hold_it() {
        for value in [1e-6, 0.001, 0.3, 0.5, 0.999, 1.0, 1.05, 1.0905, 1.0906, 2.0, 2.1, 3.0, 1000.0, 131_072.0] {
            let edge = |i: i32| (f64::from(i) / 8.0).exp2();
            let i = index(value);
            assert!(edge(i - 1) * (1.0 - 1e-12) < value && value <= edge(i) * (1.0 + 1e-12), "{value}: {i}");
        }
        assert_eq!(
            (index(1.0), index(2.0), index(0.5), index(1.5)),
            (0, 8, -8, 5),
            "an edge is in the bucket below it"
        );
    }

    #[test]
    fn runs_of_buckets_tell_what_was_counted() {
        let counted = Exponential::new();
        for value in [0.0, -1.0, f64::NAN, 1e-9, 0.5, 1.0, 1.0, 1.0, 1.05, 1e300] {
            counted.record(value);
        }
        let mut histogram = Histogram::default();
        counted.write(&mut histogram);
        assert_eq!(read(&histogram), [(-8, 1), (0, 3), (1, 1), (160, 1)]);
        assert_eq!((histogram.sample_count, histogram.zero_count, histogram.schema), (10, 4, 3));
        assert_eq!(histogram.zero_threshold, (-20f64).exp2());
    }

    #[test]
    fn what_stands_in_the_text_stands_in_the_families() {
        let text = "# HELP a_total How many.\n# TYPE a_total counter\na_total{m=\"x\\\"y\\\\,\\nz\",n=\"\"} 3\na_total 4\n\n\
                    # TYPE b gauge\nb{m=\"a b\"} 1.5e-3\nb NaN\n";
        let [a, b] = &families(text)[..] else { panic!("two families") };
        assert_eq!((&*a.name, &*a.help, a.kind, a.metric.len()), ("a_total", "How many.", COUNTER, 2));
        let pair = |name: &str, value: &str| LabelPair { name: name.into(), value: value.into() };
        assert_eq!(a.metric[0].label, [pair("m", "x\"y\\,\nz"), pair("n", "")]);
        assert_eq!((a.metric[0].counter.as_ref().unwrap().value, a.metric[1].label.len()), (3.0, 0));
        assert_eq!((&*b.name, b.kind, &b.metric[0].label[..]), ("b", GAUGE, &[pair("m", "a b")][..]));
        assert_eq!(b.metric[0].gauge.as_ref().unwrap().value, 0.0015);
        assert!(b.metric[1].gauge.as_ref().unwrap().value.is_nan() && b.metric[1].counter.is_none());
    }
}
