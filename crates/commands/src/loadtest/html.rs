//! The page: one file, for light and dark and for narrow screens, that fetches nothing from anywhere.

use super::chart::{self, Chart, Scale, Series};
use super::report::{Purpose, Report, Trial};
use super::text;
use uncork_loadtest::{Slo, Slot, at_quantile};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9dce0; --paper: #fff; --panel: #f6f7f8;
  --c0: #0b68cb; --c1: #c2570c; --c2: #1a7f4b; --c3: #8a3ffc; --c4: #b3261e;
  --passed: #1a7f4b; --missed: #b3261e; --inconclusive: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a0a6ae; --line: #363b42; --paper: #14171a;
  --panel: #1d2125; --c0: #6cb2ff; --c1: #ffa057; --c2: #5fd495; --c3: #c4a2ff; --c4: #ff8d85;
  --passed: #5fd495; --missed: #ff8d85; --inconclusive: #e5c05a; } }
body { margin: 2rem auto; max-width: 50rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.soft { color: var(--soft); } code { overflow-wrap: anywhere; } .verdict { background: var(--panel); border-left: 6px solid; padding: .8rem 1rem;
  border-radius: 4px; overflow-wrap: anywhere; } .verdict b { color: inherit; }
.passed { border-color: var(--passed); } .missed { border-color: var(--missed); }
.inconclusive { border-color: var(--inconclusive); }
svg { width: 100%; height: auto; display: block; touch-action: pan-y; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } .x { text-anchor: middle; } .y { text-anchor: end; }
.grid { stroke: var(--line); } .at { stroke: var(--ink); stroke-opacity: .5; } .told { min-height: 1.5em; margin: 0; }
 .rule { stroke: var(--soft); stroke-dasharray: 5 5; }
polyline { fill: none; stroke: currentColor; stroke-width: 1.6; } circle, rect { fill: currentColor; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } .c4 { color: var(--c4); }
.legend { display: flex; flex-wrap: wrap; gap: 0 1.2rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
@media (max-width: 40rem) { body { margin: 1rem auto; } svg text { font-size: 22px; } svg [transform] { display: none; } .told { min-height: 3em; } }
";

/// Tells the values at the pointer, of every line of a chart or of its bar, below it.
const POINTER: &str = "
for (const svg of document.querySelectorAll('svg')) {
  const told = svg.parentNode.insertBefore(document.createElement('p'), svg.nextSibling), at = svg.querySelector('.at');
  told.className = 'told soft';
  const lines = [...svg.querySelectorAll('polyline')].map((line) => ({ name: line.dataset.name, colour: line.getAttribute('class'),
    places: line.getAttribute('points').split(' ').filter(Boolean).map((pair) => Number(pair.split(',')[0])), values: line.dataset.values.split(',') }));
  const nearest = (places, x) => places.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(places[best] - x) ? i : best), 0);
  const tell = (event) => {
    const x = (event.clientX - svg.getBoundingClientRect().left) * svg.viewBox.baseVal.width / svg.clientWidth;
    const bar = [...svg.querySelectorAll('rect')].find((rect) => x >= rect.x.baseVal.value && x <= rect.x.baseVal.value + rect.width.baseVal.value);
    told.replaceChildren(bar ? bar.textContent : '');
    const near = lines.filter(({ places }) => places.length).map((line) => ({ ...line, i: nearest(line.places, x) }));
    if (!near.length) return;
    const first = near.reduce((a, b) => (Math.abs(a.places[a.i] - x) <= Math.abs(b.places[b.i] - x) ? a : b));
    for (const side of ['x1', 'x2']) at.setAttribute(side, first.places[first.i]);
    at.setAttribute('visibility', 'visible');
    told.append(`${svg.dataset.x} ${first.values[first.i].split(' ')[0]}: `);
    const seen = new Set();
    // A line that was broken is several: the piece that is nearest speaks.
    for (const line of near.sort((a, b) => Math.abs(a.places[a.i] - x) - Math.abs(b.places[b.i] - x))) {
      if (seen.has(line.name)) continue;
      seen.add(line.name);
      const words = document.createElement('span');
      words.className = line.colour;
      words.textContent = `${seen.size > 1 ? ', ' : ''}${line.name} ${line.values[line.i].split(' ')[1]}`;
      told.append(words);
    }
  };
  svg.addEventListener('pointermove', tell);
  svg.addEventListener('pointerdown', tell);
  svg.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') { told.replaceChildren(); at?.setAttribute('visibility', 'hidden'); } });
}
";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let subject = report.model.as_ref().unwrap_or(&report.asked);
    let title = format!("Load test of {}", escaped(subject));
    let class = report.outcome().name();
    let line = report.verdict_line();
    let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let mut body = format!("<h1>{title}</h1>\n<p class=\"soft\">{}</p>\n", escaped(&text::heading(report)));
    body += &format!("<p class=\"verdict {class}\"><b>{}</b> {}</p>\n", escaped(word), escaped(rest));
    body += &report.notes().iter().map(|note| format!("<p>{}</p>\n", escaped(note))).collect::<String>();
    if !matches!(report.purpose, Purpose::One) {
        body += &section(
            "Latency by throughput",
            "Each point is a run at one rate; what is not answered well has no point.",
            &throughput(report),
        );
        body += &table(&text::rates(report), true);
        body += &format!("<h2>The run at {}/s</h2>\n", uncork_loadtest::short(report.main().offered()));
    }
    let main = report.main();
    if !report.slos.is_empty() {
        let mut lines = vec![["", "measured", "budget used"].map(str::to_owned).to_vec()];
        lines.extend(text::objectives(main));
        body += &table(&lines, true);
    }
    body += &section(
        "Latency of all requests",
        "The share answered well within a time, from when requests were due. What is refused or fails never arrives at the top.",
        &cumulative(report),
    );
    body += &section(
        "Latency over time",
        "Of good answers, by the second in which requests were due.",
        &latency_over_time(main, &report.slos),
    );
    body += &section("Requests over time", "A second, by when they were due.", &rates_over_time(main));
    if !main.batches.is_empty() {
        let name = |(least, most, _): &(u64, u64, u64)| match (least, most) {
            (least, most) if least == most => most.to_string(),
            (least, &u64::MAX) => format!("{least}+"),
            (least, most) => format!("{least}–{most}"),
        };
        let bars: Vec<(String, f64)> = main.batches.iter().map(|batch| (name(batch), batch.2 as f64)).collect();
        let svg = chart::bars("Batches of the server by their rows", "rows of a batch", "batches", &bars);
        let mean = main.mean_batch_rows.map_or(String::new(), |rows| format!(" {rows:.1} rows on average."));
        body += &format!(
            "<h2>The server's batches</h2>\n<p class=\"soft\">In the same time, warm-up included.{mean}</p>\n\
             <div class=\"scroll\">{svg}</div>\n"
        );
    }
    body += "<h2>All figures</h2>\n";
    body += &table(&text::counts(main), false);
    body += &table(&text::times(main), true);
    if !main.run.tally.reasons.is_empty() {
        let mut lines = vec![vec!["without a good answer".to_owned(), "requests".to_owned()]];
        lines.extend(main.run.tally.reasons.iter().map(|(reason, count)| vec![reason.clone(), count.to_string()]));
        body += &table(&lines, true);
    }
    let command = report.made.command.join(" ");
    body += &format!("<p class=\"soft\">{}<br/><code>{}</code></p>\n", escaped(&report.made.line()), escaped(&command));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}<script>{POINTER}</script>\n</body>\n</html>\n"
    )
}

fn section(title: &str, note: &str, chart: &Chart) -> String {
    format!(
        "<h2>{title}</h2>\n<p class=\"soft\">{note}</p>\n<p class=\"legend\">{}</p>\n<div class=\"scroll\">{}</div>\n",
        chart.legend(),
        chart.svg()
    )
}

/// The bounds that objectives put on latencies, in milliseconds.
fn bounds(slos: &[Slo]) -> Vec<f64> {
    slos.iter().filter_map(Slo::latency_bound).map(|bound| bound.as_secs_f64() * 1e3).collect()
}

fn cumulative(report: &Report) -> Chart {
    let tally = &report.main().run.tally;
    let all = tally.requests().max(1) as f64;
    let share_of = |histogram: &hdrhistogram::Histogram<u64>| {
        let mut points: Vec<(f64, Option<f64>)> = Vec::new();
        let mut below = 0;
        for step in histogram.iter_recorded() {
            below += step.count_since_last_iteration();
            let (ms, share) = (step.value_iterated_to() as f64 / 1e3, 100.0 * below as f64 / all);
            // A picture shows no steps smaller than this.
            if points.last().is_none_or(|(_, last)| share - last.unwrap_or_default() >= 0.1) || below == histogram.len()
            {
                points.push((ms, Some(share)));
            }
        }
        points
    };
    Chart {
        title: "Share of requests answered within a time",
        x: "ms",
        y: "% of all requests",
        scale_x: Scale::Log,
        scale_y: Scale::Linear,
        series: vec![
            Series { name: "from when they were due", points: share_of(&tally.latency), colour: 0 },
            Series { name: "from their sending", points: share_of(&tally.latency_from_sending), colour: 1 },
        ],
        rules_y: vec![100.0],
        rules_x: bounds(&report.slos),
    }
}

/// A value for each slot of the timeline.
fn over_time(trial: &Trial, of: impl Fn(&Slot, f64) -> Option<f64>) -> Vec<(f64, Option<f64>)> {
    let tally = &trial.run.tally;
    let seconds = tally.slot_length().as_secs_f64();
    let slot = |(i, slot): (usize, &Slot)| {
        let from = i as f64 * seconds;
        // The last slot may be cut short.
        let length = (trial.run.seconds - from).clamp(1e-3, seconds);
        (from + length / 2.0, of(slot, length))
    };
    tally.slots.iter().enumerate().map(slot).collect()
}

fn latency_over_time(trial: &Trial, slos: &[Slo]) -> Chart {
    let at = |quantile: f64| {
        over_time(trial, |slot, _| {
            (!slot.latency.is_empty()).then(|| at_quantile(&slot.latency, quantile) as f64 / 1e3)
        })
    };
    Chart {
        title: "Latency of good answers over time",
        x: "seconds",
        y: "ms",
        scale_x: Scale::Linear,
        scale_y: Scale::Log,
        series: vec![
            Series { name: "p50", points: at(0.5), colour: 0 },
            Series { name: "p99", points: at(0.99), colour: 1 },
            Series { name: "max", points: at(1.0), colour: 4 },
        ],
        rules_y: bounds(slos),
        rules_x: vec![],
    }
}

fn rates_over_time(trial: &Trial) -> Chart {
    let of = |count: &dyn Fn(&Slot) -> u64| over_time(trial, |slot, seconds| Some(count(slot) as f64 / seconds));
    Chart {
        title: "Requests a second over time",
        x: "seconds",
        y: "requests/s",
        scale_x: Scale::Linear,
        scale_y: Scale::Linear,
        series: vec![
            Series { name: "due", points: of(&|slot| slot.due), colour: 0 },
            Series { name: "answered well", points: of(&|slot| slot.good), colour: 2 },
            Series { name: "refused", points: of(&|slot| slot.refused), colour: 1 },
            Series { name: "errors", points: of(&|slot| slot.failed), colour: 4 },
        ],
        rules_y: vec![],
        rules_x: vec![],
    }
}

fn throughput(report: &Report) -> Chart {
    let mut trials: Vec<&Trial> = report.trials.iter().collect();
    trials.sort_by(|a, b| a.offered().total_cmp(&b.offered()));
    let at = |quantile: f64| trials.iter().map(|trial| (trial.answers(), trial.within_ms(quantile))).collect();
    Chart {
        title: "Latency by good answers a second",
        x: "good answers a second",
        y: "ms",
        scale_x: Scale::Linear,
        scale_y: Scale::Log,
        series: vec![
            Series { name: "p50", points: at(0.5), colour: 0 },
            Series { name: "p99", points: at(0.99), colour: 1 },
        ],
        rules_y: bounds(&report.slos),
        rules_x: vec![],
    }
}

fn table(lines: &[Vec<String>], has_head: bool) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let (head, body) = lines.split_at(usize::from(has_head && !lines.is_empty()));
    let head: String = head.iter().map(|cells| row(cells, "th")).collect();
    let body: String = body.iter().map(|cells| row(cells, "td")).collect();
    format!("<div class=\"scroll\"><table>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table></div>\n")
}

/// Text that may hold anything, as a server's words do.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            // XML has no way to write them.
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
