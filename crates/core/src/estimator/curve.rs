//! Batch times that are no line: what the sizes took themselves, where that is clearly something else than the line says.
//!
//! Kernels change with the size of a batch, caches overflow, devices run whole tiles: t(n) can have knees, steps and slopes that
//! change. Sizes are put into classes, a quarter of an octave each, and each class remembers its mean. The curve through them
//! never falls. It is used only where it differs from the line by more than the noise of the classes explains: noise alone makes
//! a crooked curve too, and decisions by that are worse than by the line.

use std::time::Duration;

/// Classes: those of one to eight rows, and four for each octave from there on.
pub(super) const ANCHORS: usize = 32;
/// Batches that the mean of a class rests on. More: steadier; fewer: quicker to follow.
const MOST: f64 = 6.0;
/// Batches that what a class usually takes rests on. Fewer: a change becomes usual before it is noticed as one.
const USUAL: f64 = 50.0;
/// Share of a new deviation in the scatter within classes.
const SCATTER_GAIN: f64 = 0.05;
/// The least difference from the line, as a share of it, that is worth a curve.
const LEAST: f64 = 0.03;
/// How far beyond what noise makes of the classes' means their differences must be, in standard deviations.
const SIGNIFICANT: f64 = 6.0;
/// The most that one batch counts for, as a logarithm: a quarter longer or shorter than its class.
const CLIP: f64 = 0.25;

/// Times at some sizes, both rising; straight between them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    /// Rows, and seconds.
    at: Vec<(f64, f64)>,
    /// Of the sizes up to each, which makes the most rows a second.
    fastest: Vec<usize>,
}

impl Curve {
    /// Through these rows and seconds, each with a weight. Where times fall, those on both sides get
    /// their mean.
    pub(super) fn through(points: impl Iterator<Item = (f64, f64, f64)>) -> Curve {
        // Rows, seconds and weight of points, of which some share one time (pool adjacent violators).
        let mut pools: Vec<(Vec<f64>, f64, f64)> = Vec::new();
        for (rows, seconds, weight) in points {
            let mut pool = (vec![rows], seconds, weight);
            while let Some(before) = pools.pop_if(|before| before.1 > pool.1) {
                let weight = before.2 + pool.2;
                let seconds = (before.1 * before.2 + pool.1 * pool.2) / weight;
                pool = ([before.0, pool.0].concat(), seconds, weight);
            }
            pools.push(pool);
        }
        let at = pools.into_iter().flat_map(|(rows, seconds, _)| rows.into_iter().map(move |rows| (rows, seconds)));
        let at: Vec<(f64, f64)> = at.collect();
        let speed = |position: usize| at[position].0 / at[position].1;
        let faster = |best: &mut usize, position| {
            *best = if speed(position) >= speed(*best) { position } else { *best };
            Some(*best)
        };
        let fastest = (0..at.len()).scan(0, faster).collect();
        Curve { at, fastest }
    }

    /// Of the known sizes below `rows` the one that makes the most rows a second.
    pub(super) fn fastest_below(&self, rows: usize) -> Option<usize> {
        let below = self.at.partition_point(|point| point.0 < rows as f64);
        let fastest = self.fastest[below.checked_sub(1)?];
        Some(self.at[fastest].0.round().max(1.0) as usize).filter(|size| *size < rows)
    }

    /// The sizes that it goes through, rising.
    pub(super) fn rows(&self) -> impl Iterator<Item = f64> {
        self.at.iter().map(|point| point.0)
    }

    /// Seconds of a batch of `rows`; beyond the ends as `line` has it, in proportion.
    pub(super) fn seconds(&self, rows: f64, line: impl Fn(f64) -> f64) -> f64 {
        let next = self.at.partition_point(|point| point.0 < rows);
        let end = |(size, seconds): (f64, f64)| {
            let by_line = line(size);
            if by_line > 0.0 { seconds * line(rows) / by_line } else { seconds }
        };
        match (next.checked_sub(1).and_then(|before| self.at.get(before)), self.at.get(next)) {
            (Some(&(low, below)), Some(&(high, above))) => {
                let part = (rows - low) / (high - low);
                below + part * (above - below)
            }
            (Some(&last), None) => end(last).max(last.1),
            (None, Some(&first)) => end(first).min(first.1),
            (None, None) => line(rows),
        }
    }
}

/// What the size classes took.
#[derive(Debug, Clone)]
pub(super) struct SizeClasses {
    classes: [Class; ANCHORS],
    /// Mean square of the logarithm of a time over its class's mean.
    scatter: f64,
    /// Times that it stems from, as far as they count.
    repeats: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    count: f64,
    rows: f64,
    /// Mean logarithm of the seconds.
    log: f64,
    /// The same of up to [`USUAL`] batches.
    usual: f64,
    seen: f64,
}

/// The class of batches of so many rows.
fn class(rows: usize) -> usize {
    let rows = rows.max(1);
    let beyond = || 8 + ((rows as f64 / 8.0).log2() * 4.0 - 1e-9) as usize;
    if rows <= 8 { rows - 1 } else { beyond().min(ANCHORS - 1) }
}

impl SizeClasses {
    pub(super) fn new() -> SizeClasses {
        SizeClasses { classes: [Class::default(); ANCHORS], scatter: 0.0, repeats: 0.0 }
    }

    /// What these sizes took, each timed several times, side by side: their medians, and how the times scatter around those.
    pub(super) fn side_by_side(batches: &[(usize, &[Duration])]) -> SizeClasses {
        let mut sizes = SizeClasses::new();
        let mut squares = 0.0;
        for (rows, times) in batches {
            let mut logs: Vec<f64> = times.iter().map(|time| time.as_secs_f64().max(1e-9).ln()).collect();
            logs.sort_unstable_by(f64::total_cmp);
            let Some(&median) = logs.get(logs.len() / 2) else { continue };
            squares += logs.iter().map(|log| (log - median).powi(2)).sum::<f64>();
            sizes.repeats += (logs.len() - 1) as f64;
            let (class, count) = (&mut sizes.classes[class(*rows)], logs.len() as f64);
            class.count += count;
            class.rows += (*rows as f64 - class.rows) * count / class.count;
            class.log += (median - class.log) * count / class.count;
        }
        sizes.scatter = squares / sizes.repeats.max(1.0);
        sizes.classes.iter_mut().for_each(|class| class.count = class.count.min(MOST));
        sizes
    }

    /// How long a batch of `rows` takes by those of its class, `line` telling how sizes within it differ; `None` without any.
    pub(super) fn seconds(&self, rows: usize, line: impl Fn(f64) -> f64) -> Option<f64> {
        let Class { count, rows: mean, log, .. } = self.classes[class(rows)];
        let (here, there) = (line(rows as f64), line(mean));
        (count > 0.0).then(|| log.exp() * if here > 0.0 && there > 0.0 { here / there } else { 1.0 })
    }

    /// The same by more batches: what has changed lately shows beside it.
    pub(super) fn usual_seconds(&self, rows: usize, line: impl Fn(f64) -> f64) -> Option<f64> {
        let Class { log, usual, .. } = self.classes[class(rows)];
        self.seconds(rows, line).map(|seconds| seconds * (usual - log).exp())
    }

    /// Takes in a batch.
    pub(super) fn observe(&mut self, rows: usize, seconds: f64, line: impl Fn(f64) -> f64) {
        let deviation = self.seconds(rows, &line).map(|expected| (seconds / expected).ln());
        if let Some(deviation) = deviation {
            self.repeats = (self.repeats + 1.0).min(1.0 / SCATTER_GAIN);
            self.scatter += (deviation * deviation - self.scatter) / self.repeats;
        }
        let class = &mut self.classes[class(rows)];
        let before = class.rows;
        class.count = (class.count + 1.0).min(MOST);
        class.rows += (rows as f64 - class.rows) / class.count;
        class.seen = (class.seen + 1.0).min(USUAL);
        let Some(deviation) = deviation else {
            (class.log, class.usual) = (seconds.ln(), seconds.ln());
            return;
        };
        // A straggler says little of its size. The mean size moves along the line.
        let along = if line(before) > 0.0 { (line(class.rows) / line(before)).ln() } else { 0.0 };
        let unusual = deviation + class.log - class.usual;
        class.log += along + deviation.clamp(-CLIP, CLIP) / class.count;
        class.usual += along + unusual.clamp(-CLIP, CLIP) / class.seen;
    }

    /// Forgets what they took, not how much they scatter.
    pub(super) fn clear(&mut self) {
        self.classes = [Class::default(); ANCHORS];
    }

    /// The curve, where it is significantly none of the line's.
    pub(super) fn curve(&self, line: impl Fn(f64) -> f64) -> Option<Curve> {
        let known = || self.classes.iter().filter(|class| class.count > 0.0);
        let off = |class: &Class| class.log - line(class.rows).ln();
        let (mut sum, mut most, mut count) = (0.0, 0.0f64, 0.0);
        for class in known() {
            let off = off(class);
            // What the scatter makes of a mean of so many; a thousandth at least.
            let chance = self.scatter / class.count + 1e-6;
            (sum, most, count) = (sum + off * off / chance, most.max(off.abs()), count + 1.0);
        }
        // The sum is about chi-squared with as many degrees of freedom as there are classes, less the two of the line.
        let freedom: f64 = count - 2.0;
        let is_significant = freedom > 0.0 && sum > freedom + SIGNIFICANT * (2.0 * freedom).sqrt();
        if !is_significant || most < LEAST || !sum.is_finite() || self.repeats < MOST {
            return None;
        }
        Some(Curve::through(known().map(|class| (class.rows, class.log.exp(), class.count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: fn(f64) -> f64 = |rows| 0.01 + 0.0005 * rows;

    /// The curve after forty batches of each of these sizes, each so many times as long as `time` says.
    fn learned(time: impl Fn(f64) -> f64, mut factor: impl FnMut(usize) -> f64) -> Option<Curve> {
        let mut sizes = SizeClasses::new();
        for number in 0..400 {
            let rows = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128][number % 10];
            sizes.observe(rows, time(rows as f64) * factor(number), LINE);
        }
        sizes.curve(LINE)
    }

    /// Noise of ±40 %, in two heaps.
    fn bimodal(number: usize) -> f64 {
        if number.wrapping_mul(0x9e37_79b9) >> 7 & 1 == 0 { 0.7 } else { 1.4 }
    }

    #[test]
    fn a_line_is_left_a_line_with_noise_and_without() {
        assert_eq!(learned(LINE, |_| 1.0), None);
        assert_eq!(learned(LINE, bimodal), None);
        assert_eq!(learned(LINE, |number| if number % 97 == 7 { 5.0 } else { 1.0 }), None, "stragglers");
    }

    #[test]
    fn a_knee_is_found_and_batches_end_there() {
        let knee = |rows: f64| if rows <= 24.0 { 0.010 } else { 0.010 + 0.002 * (rows - 24.0) };
        for curve in [learned(knee, |_| 1.0), learned(knee, |number| 0.9 + 0.2 * (number * 37 % 101) as f64 / 100.0)] {
            let curve = curve.expect("a knee is no line");
            for rows in [1.0, 24.0, 48.0, 128.0] {
                let error = curve.seconds(rows, LINE) / knee(rows) - 1.0;
                assert!(error.abs() < 0.1, "t({rows}) is off by {error}");
            }
            assert_eq!(
                (curve.fastest_below(129), curve.fastest_below(24), curve.fastest_below(1)),
                (Some(24), Some(16), None)
            );
        }
    }

    #[test]
    fn what_was_timed_side_by_side_is_judged_in_the_same_way() {
        let curve = |time: fn(f64) -> f64, factor: fn(usize) -> f64| {
            let seconds = |rows: usize, number| Duration::from_secs_f64(time(rows as f64) * factor(number));
            let sizes = [1, 2, 4, 8, 16, 24, 32, 64, 128];
            let times = sizes.map(|rows| (0..20).map(|number| seconds(rows, number + rows)).collect::<Vec<_>>());
            let batches: Vec<_> = sizes.into_iter().zip(times.iter().map(Vec::as_slice)).collect();
            SizeClasses::side_by_side(&batches).curve(LINE)
        };
        let knee = |rows: f64| if rows <= 24.0 { 0.010 } else { 0.010 + 0.002 * (rows - 24.0) };
        assert_eq!((curve(LINE, |_| 1.0), curve(LINE, bimodal)), (None, None));
        let found = curve(knee, |number| if number % 7 == 3 { 1.2 } else { 1.0 }).expect("a knee is no line");
        assert_eq!(found.fastest_below(129), Some(24));
        assert_eq!(found.rows().collect::<Vec<_>>(), [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 64.0, 128.0]);
        assert_eq!(SizeClasses::side_by_side(&[]).curve(LINE), None);
    }

    #[test]
    fn times_never_fall_with_the_rows() {
        let falling = Curve::through([(1.0, 3.0, 1.0), (2.0, 1.0, 1.0), (4.0, 5.0, 2.0), (8.0, 4.0, 1.0)].into_iter());
        let times: Vec<f64> = (1..200).map(|rows| falling.seconds(f64::from(rows) / 10.0, LINE)).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(falling.seconds(1.0, LINE), 2.0);
        assert_eq!(class(usize::MAX), ANCHORS - 1);
    }
}
