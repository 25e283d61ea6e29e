//! The variables `UNCORK_…`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use tracing_subscriber::filter::Targets;

use super::keys;
use super::problem::{Place, Report, most_alike};
use super::setting::Setting;
use super::traces;

const PREFIX: &str = "UNCORK_";
const CONFIG: &str = "UNCORK_CONFIG";
const LOG: &str = "UNCORK_LOG";
/// The commit that a build is of.
const OF_THE_BUILD: &str = "UNCORK_COMMIT";

/// Likeness from which on a variable is taken for a misspelt other one. Others than ours may begin with our prefix.
const ALIKE: f64 = 0.85;

/// What is logged where nothing else is asked for: not each of the kernels that are tuned for a graphics processor.
const DEFAULT_LOG: &str = "info,cubecl=warn";

/// The known variables that are set, by name: all of ours, and OpenTelemetry's that are followed.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Picks out the known variables and notes unknown ones.
    pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>, report: &mut Report) -> Environment {
        let mut known = vec![CONFIG.to_owned(), LOG.to_owned()];
        known.extend(keys::SERVER.iter().chain(keys::MODEL_COMMON).map(|key| keys::variable(key)));
        let mut found = BTreeMap::new();
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            if traces::VARIABLES.contains(&name) {
                // By its specification, an empty one is as good as none.
                let value = value.to_string_lossy();
                if !value.is_empty() {
                    found.insert(name.to_owned(), value.into_owned());
                }
                continue;
            }
            // What is said when the program is built is no business of one that runs.
            if !name.starts_with(PREFIX) || name == OF_THE_BUILD {
                continue;
            }
            let place = Place::Variable(name.to_owned());
            if known.iter().any(|k| k == name) {
                match value.into_string() {
                    Ok(value) => drop(found.insert(name.to_owned(), value)),
                    Err(_) => report.note(place, "is not UTF-8"),
                }
            } else if !is_service_link(name, &value.to_string_lossy()) {
                report.note(place, format!("unknown variable{}", instead(name)));
            }
        }
        Environment(found)
    }

    /// The variable that stands for `key`.
    pub(super) fn get(&self, key: &str) -> Option<Setting> {
        let name = keys::variable(key);
        self.0.get(&name).map(|value| Setting::word(Place::Variable(name), value.clone()))
    }

    /// A variable that is not ours.
    pub(super) fn standard(&self, name: &'static str) -> Option<Setting> {
        self.0.get(name).map(|value| Setting::word(Place::Variable(name.into()), value.clone()))
    }

    /// The configuration file that is named.
    pub(super) fn config(&self) -> Option<PathBuf> {
        self.0.get(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// What is to be logged.
    pub(super) fn log(&self, report: &mut Report) -> String {
        let filter = self.0.get(LOG).map_or(DEFAULT_LOG, String::as_str);
        let wrong = match filter.parse::<Targets>() {
            Err(error) => Some(error.to_string()),
            // They would be read, and let nothing through.
            Ok(_) if filter.contains('[') => Some("it cannot choose spans or fields".into()),
            Ok(targets) if !speaks_of_ours(&targets) => {
                Some("nothing that uncork logs is called so, and the log would be empty".into())
            }
            Ok(_) => None,
        };
        if let Some(why) = wrong {
            let message = format!("is not a filter like 'info' or 'uncork=debug': {why}");
            report.note_value(Place::Variable(LOG.into()), format!("{filter:?}"), message);
        }
        filter.to_owned()
    }
}

/// Whether the filter says what becomes of what this program logs, whose targets all begin with its name.
fn speaks_of_ours(targets: &Targets) -> bool {
    targets.default_level().is_some() || targets.iter().any(|(target, _)| target.starts_with("uncork"))
}

/// What to say instead of a variable that is unknown.
fn instead(name: &str) -> String {
    let key = name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_lowercase();
    if keys::MODEL.iter().any(|keys| keys.contains(&key.as_str())) {
        return format!("; '{key}' is said of one model, in its [[model]]: it has no variable");
    }
    // The prefix, which all have, is no likeness.
    let known = keys::SERVER.iter().chain(keys::MODEL_COMMON).copied().chain(["config", "log"]);
    let meant = most_alike(&key, known, ALIKE);
    meant.map(|key| format!("; did you mean '{}'?", keys::variable(key))).unwrap_or_default()
}

/// Whether Kubernetes set the variable: it describes every service of the namespace to every pod, and a service called
/// `uncork` or `uncork-…` gives variables that look like ours.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_port = |rest: &str| {
        let mut parts = rest.split('_');
        parts.next().is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && is_url)
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port(rest))
}
