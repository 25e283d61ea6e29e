//! Where the time of a model goes: what each node takes, the slowest first, and the sum of each operator.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uncork_onnx::{Graph, Spent};

use super::speed::case_rows;

/// Nodes that are listed.
const LISTED: usize = 40;
/// How long a model is run, at least a few times.
const SECONDS: Duration = Duration::from_secs(2);
const FEWEST: usize = 5;

/// Runs the model in `folder` on its first row, on one thread. A folder is one of the corpus: `model.onnx`, `0/input_N.pb`.
pub(crate) fn run(folder: &Path) -> ExitCode {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|e| e.to_string());
    match pool.and_then(|pool| pool.install(|| measured(folder).map_err(|e| e.to_string()))) {
        Ok(runs) => {
            print(&runs);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// What each node took, in the order of the nodes: the median of all runs.
fn measured(folder: &Path) -> Result<Vec<Spent>, Box<dyn std::error::Error>> {
    let graph = Graph::open(&folder.join("model.onnx"))?;
    let inputs = case_rows(folder, 1)?;
    let (mut list, begin) = (graph.profile(inputs.clone())?, Instant::now());
    let mut times = vec![Vec::new(); list.len()];
    while begin.elapsed() < SECONDS || times.first().is_some_and(|all| all.len() < FEWEST) {
        for (all, spent) in times.iter_mut().zip(graph.profile(inputs.clone())?) {
            all.push(spent.time);
        }
    }
    for (spent, mut all) in list.iter_mut().zip(times) {
        all.sort_unstable();
        spent.time = all[all.len() / 2];
    }
    Ok(list)
}

fn print(list: &[Spent]) {
    // A loop's or branch's own time is what its body leaves.
    let mut list = list.to_vec();
    for i in 0..list.len() {
        let depth = list[i].depth;
        let inner = list[i + 1..].iter().take_while(|inner| inner.depth > depth);
        let inner: Duration = inner.filter(|inner| inner.depth == depth + 1).map(|inner| inner.time).sum();
        list[i].time = list[i].time.saturating_sub(inner);
    }
    let whole: Duration = list.iter().map(|spent| spent.time).sum();
    let share = |time: Duration| time.as_secs_f64() / whole.as_secs_f64() * 100.0;
    let line = |time: Duration, what: &str| println!("{:12.1} {:6.1} {what}", time.as_secs_f64() * 1e6, share(time));
    let mut operators: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for spent in &list {
        let (count, time) = operators.entry(&spent.operator).or_default();
        (*count, *time) = (*count + 1, *time + spent.time);
    }
    let mut operators: Vec<_> = operators.into_iter().collect();
    operators.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    println!("          us      %");
    line(whole, "all");
    operators.iter().for_each(|(name, (count, time))| line(*time, &format!("{count} × {name}")));
    println!();
    // A node of a body runs several times.
    let mut nodes: BTreeMap<String, (usize, Duration)> = BTreeMap::new();
    for spent in &list {
        let name = format!("{} {:?} {}", spent.operator, spent.shapes, spent.node);
        let (count, time) = nodes.entry(name).or_default();
        (*count, *time) = (*count + 1, *time + spent.time);
    }
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    nodes.iter().take(LISTED).for_each(|(name, (count, time))| line(*time, &format!("{count} × {name}")));
}
