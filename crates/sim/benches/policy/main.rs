//! Measures the policy: against the clairvoyant optimum, against the baselines, and against the figures set for it.
//!
//! `cargo bench --bench policy [-- SECTION…] [--seeds N] [--first-seed K] [--json FILE] [--page FILE]`. docs/policy-figures.md is what it writes,
//! docs/policy.md explains it.

mod baselines;
mod case;
mod closed;
mod compute;
mod cost;
mod curved;
mod curves;
mod disturbed;
mod grid;
mod latency;
mod limits;
mod loops;
mod overload;
mod pool;
mod pools;
mod report;
mod rules;
mod runners;
mod seeds;
mod shapes;
mod staggered;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use report::Report;
use seeds::Seeds;

#[derive(Parser)]
#[command(name = "policy", about = "Measures the policy")]
struct Arguments {
    /// What to measure; everything but `smoke` if nothing is named
    sections: Vec<Section>,
    /// Runs of each random load, with seeds 1, 2, … N
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them, to see whether it holds for others too: 2, 3, … N + 1 from 2 on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    first_seed: u64,
    /// Where to write the numbers for programs
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to write all tables as a page
    #[arg(long)]
    page: Option<PathBuf>,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Share of the optimum over service models, arrival processes and loads
    Grid,
    /// The same beside every baseline, the best fixed setting among them
    Baselines,
    /// Mean latency beside the best control limit and the best fixed wait
    Latency,
    /// Throughput of closed loops
    Closed,
    /// Closed loops on several runners, beside the best fixed setting
    Loops,
    /// Four and sixteen runners
    Runners,
    /// Two to sixteen runners from light load to overload, beside the best rule after the fact
    Staggered,
    /// Steady overload: latency, and how soon refusals come
    Overload,
    /// A model under a tight cap beside one of long batches
    Pool,
    /// Pools of two or three models by chance
    Pools,
    /// Models whose α is the time of a few rows
    Compute,
    /// Arrivals as they are seen in the world
    Shapes,
    /// Batch times that are no line
    Curved,
    /// Noise, drift, steps, and bursts after quiet
    Disturbed,
    /// What each rule is worth: the policy without it
    Rules,
    /// What holding could gain at most in the hardest case
    Limits,
    /// Goodput and mean latency over the load, for the plots
    Curves,
    /// Nanoseconds a request
    Cost,
    /// A small piece of the above, in seconds
    Smoke,
}

/// What the page begins with.
const HEADING: &str = "\
# The policy in figures

Every table here is written by one command. [The policy](policy.md) has the rules, and why they are so.

```sh
cargo bench --bench policy -- --page $PWD/docs/policy-figures.md --json $PWD/target/policy.json
python3 crates/sim/benches/policy/plot.py target/policy.json
```

The second line draws the two plots; it needs matplotlib (`crates/sim/benches/policy/requirements.txt`). All takes half an hour, a section
alone from seconds to four minutes: `cargo bench --bench policy -- grid --seeds 3`.

Models are t(n) in ms, cap in rows, cap in ms. Loads are shares of the capacity, the most rows a second that full batches in time make.
All times are virtual, so the machine does not matter. Only the section `cost` depends on it: it was run alone.
";

impl Section {
    fn measure(self, seeds: Seeds, report: &mut Report) {
        match self {
            Section::Grid => grid::measure(seeds, 10.0, report),
            Section::Baselines => baselines::measure(seeds, 5.0, report),
            Section::Latency => latency::measure(seeds.at_most(2), report),
            Section::Closed => closed::measure(true, report),
            Section::Loops => loops::measure(report),
            Section::Runners => runners::measure(seeds, report),
            Section::Staggered => staggered::measure(seeds.at_most(2), report),
            Section::Overload => overload::measure(seeds.at_most(2), report),
            Section::Pool => pool::measure(seeds.at_most(2), report),
            Section::Pools => pools::measure(seeds.at_most(1), report),
            Section::Compute => compute::measure(seeds.at_most(2), report),
            Section::Shapes => shapes::measure(seeds.at_most(2), report),
            Section::Curved => curved::measure(seeds.at_most(2), report),
            Section::Disturbed => disturbed::measure(seeds, report),
            Section::Rules => rules::measure(seeds, report),
            Section::Limits => limits::measure(seeds, report),
            Section::Curves => curves::measure(report),
            Section::Cost => cost::measure(report),
            Section::Smoke => {
                grid::measure(seeds.at_most(1), 1.0, report);
                closed::measure(false, report);
                cost::measure(report);
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut sections = arguments.sections;
    if sections.is_empty() {
        sections = Section::value_variants().iter().copied().filter(|s| *s != Section::Smoke).collect();
    }
    let seeds = Seeds { first: arguments.first_seed, count: arguments.seeds };
    let mut report = Report::default();
    for section in sections {
        let name = section.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string());
        report.begin(&name);
        section.measure(seeds, &mut report);
        report.end();
    }
    report.print_figures();
    if let Some(path) = arguments.page
        && let Err(error) = report.write_page(&path, HEADING)
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if let Some(path) = arguments.json
        && let Err(error) = report.write_json(&path)
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
