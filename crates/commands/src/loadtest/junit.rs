//! The report for systems that show tests: a case for each objective.

use super::html::escaped;
use super::report::{Outcome, Report};
use uncork_loadtest::Verdict;

/// JUnit's XML.
pub(super) fn text(report: &Report) -> String {
    let main = report.main();
    let seconds = report.trials.iter().map(|trial| trial.run.seconds).sum::<f64>();
    let name = match (&report.model, main.rate) {
        (Some(model), Some(rate)) => format!("{model} at {rate}/s"),
        (Some(model), None) => model.clone(),
        (None, _) => report.asked.clone(),
    };
    let line = report.verdict_line();
    // A run that tells nothing has proved nothing: an error to whoever relies on it.
    let inconclusive = report.outcome() == Outcome::Inconclusive;
    let mut cases = Vec::new();
    for (slo, judged) in report.slos.iter().zip(&main.judged) {
        let inside = match &judged.missed_by {
            _ if inconclusive => format!("<error message=\"{}\"/>", escaped(&line)),
            Some(by) => format!("<failure message=\"{}: {}\"/>", escaped(&judged.sentence), escaped(by)),
            None => String::new(),
        };
        cases.push((slo.text().to_owned(), inside));
    }
    // No objective says so.
    if let (false, Verdict::Failed(why)) = (cases.is_empty() || inconclusive, &main.verdict) {
        cases.push(("the server serves".into(), format!("<failure message=\"{}\"/>", escaped(why))));
    }
    if let Some(rate) = report.max_rate() {
        cases.push((format!("the objectives are met at {rate:.0}/s"), String::new()));
    }
    if cases.is_empty() {
        let inside = match report.outcome() {
            Outcome::Inconclusive => format!("<error message=\"{}\"/>", escaped(&line)),
            Outcome::Missed => format!("<failure message=\"{}\"/>", escaped(&line)),
            _ => String::new(),
        };
        cases.push(("a run without objectives".into(), inside));
    }
    let failures = cases.iter().filter(|(_, inside)| inside.starts_with("<failure")).count();
    let errors = cases.iter().filter(|(_, inside)| inside.starts_with("<error")).count();
    let head = format!(
        "<testsuite name=\"uncork loadtest: {}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{seconds:.3}\">",
        escaped(&name),
        cases.len(),
    );
    let case = |(text, inside): &(String, String)| {
        let (class, name) = (escaped(&name), escaped(text));
        format!("    <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\">{inside}</testcase>\n")
    };
    let cases: String = cases.iter().map(case).collect();
    let out = escaped(&line);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  {head}\n{cases}    <system-out>{out}</system-out>\n  \
         </testsuite>\n</testsuites>\n"
    )
}
