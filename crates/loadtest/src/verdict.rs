//! The verdict on a run: passed, missed, or not to be told.

use std::cmp::Reverse;
use std::time::Duration;

use super::quantile::at_quantile;
use super::run::Run;
use super::silence::Gone;
use super::slo::{Judged, Slo, short};
use super::tally::Tally;
use super::target::REFUSALS;

/// A generator that was working for more than this part of the time had no room for what came at once: answers lay
/// unread and requests unsent for its own sake. At nine tenths a queue is ten times as long as at a half.
pub(super) const SATURATED: f64 = 0.9;
/// A generator whose p99 lateness exceeds this part of the tightest latency objective sent other arrivals than those
/// asked for: what moved by less than half of what the objective allows is the same load to it.
pub(super) const MOVED: f64 = 0.5;
/// A generator that left out more than this part of the requests sent another load than the one asked for.
const LEFT_OUT: f64 = 0.01;
/// Reasons that are named where nothing was answered well.
const MOST_TOLD: usize = 2;
/// What helps a generator that has too much to do.
const MORE_THREADS: &str = "add threads, or a machine";
/// Lateness that moves nothing where no objective speaks of latency.
const MOVED_ANYWAY: Duration = Duration::from_millis(100);

/// What is to be said of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// All objectives were met.
    Passed,
    /// At least one was not.
    Missed,
    /// It cannot be told, for this reason.
    Inconclusive(String),
    /// There were no objectives.
    Measured,
    /// All objectives were met, or there were none, but the server does not serve, for this reason.
    Failed(String),
}

/// Judges a run, and says how each objective fared.
pub fn judge(run: &Run, slos: &[Slo]) -> (Verdict, Vec<Judged>) {
    let tally = &run.tally;
    let judged: Vec<Judged> = slos.iter().map(|slo| slo.judge(tally, &tally.latency, run.seconds)).collect();
    let verdict = decide(run, slos, &judged);
    (verdict, judged)
}

fn decide(run: &Run, slos: &[Slo], judged: &[Judged]) -> Verdict {
    let tally = &run.tally;
    if run.interrupted {
        let under_way = still_under_way(tally).map_or(String::new(), |words| format!(", with {words}"));
        return Verdict::Inconclusive(format!("it was ended early{under_way}"));
    }
    if tally.requests() == 0 {
        return Verdict::Inconclusive("no request was due; raise the rate, or run for longer".into());
    }
    // No generator, however late, makes a server refuse or fail.
    let is_its_own_word = tally.refused + tally.failed + tally.wrong + tally.broken > 0 && !run.out_of_files;
    if let Some(why) = nothing_good(tally).filter(|_| is_its_own_word || slos.is_empty()) {
        return Verdict::Failed(why);
    }
    if slos.is_empty() && tally.good() > 0 {
        return gone(tally).map_or(Verdict::Measured, Verdict::Failed);
    }
    if tally.too_late as f64 > LEFT_OUT * tally.requests() as f64 {
        return Verdict::Inconclusive(format!(
            "the generator could not keep up and left out {} of {} requests, so the load was not the one asked for; \
             {MORE_THREADS}",
            tally.too_late,
            tally.requests()
        ));
    }
    let late = Duration::from_micros(at_quantile(&tally.lateness, 0.99));
    let late_ms = late.as_secs_f64() * 1e3;
    if judged.iter().any(|judged| !judged.met) {
        if run.out_of_files {
            return Verdict::Inconclusive(format!(
                "the system allowed no open files for more than {} connections, so the miss may be the generator's own; raise the \
                 limit (ulimit -n), or allow fewer connections",
                run.connections
            ));
        }
        if run.busy > SATURATED {
            return Verdict::Inconclusive(format!(
                "the generator was busy for {:.0} % of the time, so the miss may be its own; {MORE_THREADS}",
                100.0 * run.busy
            ));
        }
        let best = tally.unhindered();
        let unhindered = slos.iter().all(|slo| slo.judge(&best, &best.latency, run.seconds).met);
        return match unhindered {
            true if tally.too_late > 0 => Verdict::Inconclusive(format!(
                "the generator could not keep up and left out {} of {} requests: with those answered the objectives might be met; \
                 {MORE_THREADS}",
                tally.too_late,
                tally.requests()
            )),
            true => Verdict::Inconclusive(format!(
                "the miss is the generator's own lateness ({late_ms:.1} ms at p99): without it the objectives are met; \
                 give it a processor of its own"
            )),
            false => nothing_good(tally).map_or(Verdict::Missed, Verdict::Failed),
        };
    }
    if let Some(slo) = slos.iter().find(|slo| tally.requests() < slo.least_requests()) {
        return Verdict::Inconclusive(format!(
            "{} requests are too few to meet {}; it takes {} or more",
            tally.requests(),
            slo.text(),
            slo.least_requests()
        ));
    }
    let tightest = slos.iter().filter_map(Slo::latency_bound).min();
    if late > tightest.map_or(MOVED_ANYWAY, |bound| bound.mul_f64(MOVED)) {
        return Verdict::Inconclusive(format!(
            "the generator was late by {late_ms:.1} ms at p99, so the load was not the one asked for; \
             give it a processor of its own"
        ));
    }
    nothing_good(tally).or_else(|| gone(tally)).map_or(Verdict::Passed, Verdict::Failed)
}

/// Of a run that was ended early: `3 requests under way, the oldest of them due 5012 ms before`.
pub fn still_under_way(tally: &Tally) -> Option<String> {
    let (requests, oldest_ms) = (tally.under_way.len(), at_quantile(&tally.under_way, 1.0) as f64 / 1e3);
    match requests {
        0 => None,
        1 => Some(format!("1 request under way, due {} ms before", short(oldest_ms))),
        _ => Some(format!("{requests} requests under way, the oldest of them due {} ms before", short(oldest_ms))),
    }
}

/// Not one request was answered well, whatever the objectives are, and what came instead; unless the generator left out too much to tell.
fn nothing_good(tally: &Tally) -> Option<String> {
    if tally.good() > 0 || tally.too_late as f64 > LEFT_OUT * tally.requests() as f64 {
        return None;
    }
    let mut reasons: Vec<(&String, &u64)> = tally.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(**count));
    let told = |(reason, count): &(&String, &u64)| {
        let is_refusal = REFUSALS.iter().any(|status| reason.starts_with(&format!("{status} ")));
        let how = if is_refusal { "refused with " } else { "" };
        format!("{how}{reason} ({count} of {})", tally.requests())
    };
    let told: Vec<String> = reasons.iter().take(MOST_TOLD).map(told).collect();
    Some(format!("not one request was answered well: {}", told.join("; ")))
}

/// The server was gone when the run ended.
fn gone(tally: &Tally) -> Option<String> {
    tally.gone().map(|how| match how {
        Gone::Broke => {
            "the server was gone at the end: the last connections all broke, and nothing was answered".into()
        }
        Gone::Silent(time) => {
            format!(
                "the server was silent at the end: no answer came in time for the last {} s",
                short(time.as_secs_f64())
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tally::{Ending, Times};
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A run of answers that the generator came to `late_ms` late, and that took the server `took_ms`.
    fn run(late_ms: u64, took_ms: u64, busy: f64) -> Run {
        let mut tally = Tally::new(Duration::ZERO, ms(10_000));
        for _ in 0..1000 {
            let (taken, ended) = (ms(late_ms), ms(late_ms + took_ms));
            let times = Times { due: Duration::ZERO, taken, sent: Some(taken), ended, ended_earliest: ended };
            tally.count(times, 1, Some(200), &Ending::Good, None);
        }
        Run { tally, seconds: 10.0, busy, interrupted: false, connections: 1, out_of_files: false }
    }

    fn verdict(run: &Run, slos: &[&str]) -> Verdict {
        let slos: Vec<Slo> = slos.iter().map(|slo| slo.parse().expect("an objective")).collect();
        judge(run, &slos).0
    }

    fn is_inconclusive(verdict: &Verdict, words: &str) -> bool {
        matches!(verdict, Verdict::Inconclusive(why) if why.contains(words))
    }

    #[test]
    fn a_run_passes_or_misses_where_the_generator_was_in_time() {
        assert_eq!(verdict(&run(0, 20, 0.3), &["p99<=25ms", "errors<=1%"]), Verdict::Passed);
        assert_eq!(verdict(&run(0, 30, 0.3), &["p99<=25ms", "errors<=1%"]), Verdict::Missed);
        assert_eq!(verdict(&run(0, 30, 0.3), &[]), Verdict::Measured);
    }

    #[test]
    fn a_miss_that_is_the_generators_own_is_none() {
        assert!(is_inconclusive(&verdict(&run(10, 20, 0.3), &["p99<=25ms"]), "own lateness (10.0 ms"));
        assert_eq!(verdict(&run(10, 30, 0.3), &["p99<=25ms"]), Verdict::Missed);
        assert!(is_inconclusive(&verdict(&run(0, 30, 0.97), &["p99<=25ms"]), "97 % of the time"));
    }

    #[test]
    fn a_miss_without_the_connections_that_were_asked_for_is_none() {
        let without = |took_ms| Run { out_of_files: true, connections: 24, ..run(0, took_ms, 0.3) };
        assert!(is_inconclusive(&verdict(&without(30), &["p99<=25ms"]), "more than 24 connections"));
        assert_eq!(verdict(&without(20), &["p99<=25ms"]), Verdict::Passed);
    }

    #[test]
    fn a_pass_under_another_load_than_the_one_asked_for_is_none() {
        assert_eq!(verdict(&run(10, 1, 0.3), &["p99<=25ms"]), Verdict::Passed);
        assert!(is_inconclusive(&verdict(&run(15, 1, 0.3), &["p99<=25ms"]), "not the one asked for"));
        assert!(is_inconclusive(&verdict(&run(150, 1, 0.3), &["refused<=1%"]), "not the one asked for"));
    }

    /// The same, but the generator came too late to so many others.
    fn run_without(left_out: u64, took_ms: u64) -> Run {
        let mut run = run(0, took_ms, 0.3);
        for _ in 0..left_out {
            let (due, late) = (Duration::ZERO, ms(10));
            let times = Times { due, taken: late, sent: None, ended: late, ended_earliest: late };
            run.tally.count(times, 1, None, &Ending::TooLate, None);
        }
        run
    }

    #[test]
    fn what_the_generator_left_out_is_held_against_nobody() {
        let of = |left_out, took_ms, slo: &str| verdict(&run_without(left_out, took_ms), &[slo]);
        for slo in ["errors<=0.5%", "p99.5<=25ms", "on-time:25ms>=99.5%", "answers>=100.5/s", "goodput:25ms>=100.5/s"] {
            assert!(is_inconclusive(&of(9, 20, slo), "left out 9 of 1009"), "{slo}");
        }
        // Whatever had become of those, this is missed.
        for slo in ["p80<=25ms", "on-time:25ms>=99%", "answers>=101/s"] {
            assert_eq!(of(9, 30, slo), Verdict::Missed, "{slo}");
        }
        assert_eq!(of(9, 20, "p50<=25ms"), Verdict::Passed);
        // It sent far less than it was asked for: nothing can be told, not even a miss.
        for slo in ["p50<=25ms", "p90<=25ms", "mean<=10ms"] {
            assert!(is_inconclusive(&of(600, 20, slo), "not the one asked for"), "{slo}");
        }
        assert_eq!(run_without(600, 20).tally.errors(), 600, "they are unanswered for all that");
    }

    #[test]
    fn too_few_requests_meet_nothing_but_can_miss() {
        assert!(is_inconclusive(&verdict(&run(0, 1, 0.3), &["p99.99<=25ms"]), "it takes 10000 or more"));
        assert_eq!(verdict(&run(0, 30, 0.3), &["p99.99<=25ms"]), Verdict::Missed);
    }

    /// A run that ends with so many requests that ended so.
    fn ending_with(count: u64, ending: &Ending) -> Run {
        let mut run = run(0, 20, 0.3);
        for i in 0..count {
            let (due, ended) = (ms(9_000 + 10 * i), ms(11_000 + 10 * i));
            let times = Times { due, taken: due, sent: Some(due), ended, ended_earliest: ended };
            run.tally.count(times, 1, None, ending, None);
        }
        run
    }

    #[test]
    fn a_server_that_is_gone_at_the_end_has_met_nothing() {
        for (ending, words) in [(Ending::Broken("the connection broke"), "gone"), (Ending::TimedOut, "silent")] {
            for slos in [&[][..], &["p50<=25ms"]] {
                let verdict = verdict(&ending_with(50, &ending), slos);
                assert!(matches!(&verdict, Verdict::Failed(why) if why.contains(words)), "{verdict:?} {slos:?}");
            }
            assert_eq!(verdict(&ending_with(50, &ending), &["errors<=0%"]), Verdict::Missed);
        }
        let refused = Ending::Refused { status: 503, reason: "full".into() };
        assert_eq!(verdict(&ending_with(50, &refused), &["p50<=25ms"]), Verdict::Passed);
    }

    /// One request that broke, or had to wait, in a last second without another was enough.
    #[test]
    fn a_server_that_lives_is_not_gone() {
        for ending in [Ending::Broken("the connection broke"), Ending::TimedOut] {
            assert_eq!(verdict(&ending_with(2, &ending), &["p50<=25ms"]), Verdict::Passed, "{ending:?}");
            assert_eq!(verdict(&ending_with(2, &ending), &[]), Verdict::Measured, "{ending:?}");
        }
        let failed = Ending::Failed { status: 500, reason: "no".into() };
        assert_eq!(verdict(&ending_with(50, &failed), &["p50<=25ms"]), Verdict::Passed, "it answers");
        let own = Ending::Broken("no free port on this machine");
        assert_eq!(verdict(&ending_with(50, &own), &["p50<=25ms"]), Verdict::Passed, "it is not the server's");
    }

    /// A run of `count` requests that all ended so.
    fn all(count: u64, status: Option<u16>, ending: &Ending) -> Run {
        let mut tally = Tally::new(Duration::ZERO, ms(10_000));
        for i in 0..count {
            let (due, ended) = (ms(i), ms(i + 1));
            let times = Times { due, taken: due, sent: Some(due), ended, ended_earliest: ended };
            tally.count(times, 1, status, ending, None);
        }
        Run { tally, ..run(0, 0, 0.3) }
    }

    /// Whatever the objectives say of refusals, nobody was served.
    #[test]
    fn a_server_that_answers_nothing_well_has_failed_whatever_the_objectives_are() {
        let failed = Ending::Failed { status: 404, reason: "no such path".into() };
        let refused = Ending::Refused { status: 503, reason: "full".into() };
        let broken = Ending::Broken("the server does not speak TLS");
        for (status, ending, told) in [
            (Some(404), failed, "404 no such path (227 of 227)"),
            (Some(503), refused, "refused with 503 full (227 of 227)"),
            (None, broken, "the server does not speak TLS (227 of 227)"),
            (None, Ending::TimedOut, "no answer in time (227 of 227)"),
        ] {
            let expected = Verdict::Failed(format!("not one request was answered well: {told}"));
            for slos in [&[][..], &["wrong<=1%"], &["p99<=25ms"], &["wrong<=0.01%"]] {
                let of = verdict(&all(227, status, &ending), slos);
                // Of silence it takes enough requests to tell.
                let is_too_few = ending == Ending::TimedOut && slos == ["wrong<=0.01%"];
                assert!(of == expected || is_too_few && is_inconclusive(&of, "too few"), "{slos:?}: {of:?}");
            }
        }
    }

    #[test]
    fn two_reasons_are_told_and_what_the_generator_left_out_is_none() {
        let mut run = all(5, None, &Ending::Broken("the connection broke"));
        run.tally.add(&all(9, Some(429), &Ending::Refused { status: 429, reason: "slower".into() }).tally);
        run.tally.add(&all(1, Some(500), &Ending::Failed { status: 500, reason: "no".into() }).tally);
        let told =
            "not one request was answered well: refused with 429 slower (9 of 15); the connection broke (5 of 15)";
        assert_eq!(verdict(&run, &["errors<=50%"]), Verdict::Failed(told.into()));
        let left_out = all(100, None, &Ending::TooLate);
        for slos in [&[][..], &["wrong<=1%"]] {
            assert!(is_inconclusive(&verdict(&left_out, slos), "left out 100 of 100"), "{slos:?}");
        }
        let no_files = Run { out_of_files: true, ..all(100, None, &Ending::Broken("no more open files")) };
        assert!(is_inconclusive(&verdict(&no_files, &["errors<=1%"]), "open files"));
    }

    #[test]
    fn a_run_that_was_ended_early_tells_nothing() {
        let interrupted = Run { interrupted: true, ..run(0, 30, 0.3) };
        assert!(is_inconclusive(&verdict(&interrupted, &["p99<=25ms"]), "ended early"));
    }

    #[test]
    fn what_hangs_when_a_run_is_ended_is_told_and_meets_no_objective() {
        let mut run = Run { interrupted: true, ..run(0, 20, 0.3) };
        (0..100).for_each(|i| run.tally.count_under_way(ms(10 * i), ms(5000)));
        let slos = ["p99<=25ms", "max<=1s", "mean<=25ms", "p50<=25ms"].map(|slo| slo.parse().expect("an objective"));
        let (verdict, judged) = judge(&run, &slos);
        assert!(
            is_inconclusive(&verdict, "100 requests under way, the oldest of them due 4997 ms before"),
            "{verdict:?}"
        );
        assert_eq!(judged.iter().map(|judged| judged.met).collect::<Vec<_>>(), [false, false, false, true]);
    }
}
