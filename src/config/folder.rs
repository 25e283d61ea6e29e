//! A folder of models: what `model.toml` and Triton's `config.pbtxt` say of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::file::{File, Table};
use super::model;
use super::pbtxt::{self, Value};
use super::pool::Pools;
use super::problem::{Place, Report};
use super::routes;
use super::setting::{self, Setting};
use super::{Flags, Layers};
use crate::files;
use crate::quote::Quoted;
use crate::registry::{ModelSpec, Source};
use crate::repository::{Described, Folder, OWN_SETTINGS, Policy, TRITON_SETTINGS};

/// Most versions of a model that are served at once.
const VERSIONS: std::ops::RangeInclusive<usize> = 1..=64;

/// The folder of models, and all that a setting there may refer to.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelsFolder {
    /// Where it is.
    pub path: PathBuf,
    /// How often it is looked at.
    pub poll: Duration,
    pub(super) flags: Flags,
    pub(super) environment: Environment,
    pub(super) pools: Pools,
}

impl ModelsFolder {
    /// The folder for a repository to follow; `strict` where a version that cannot keep its latency cap is broken.
    pub fn followed(self, strict: bool) -> Folder {
        let (path, poll) = (self.path.clone(), self.poll);
        Folder { path, poll, strict, describe: Arc::new(move |name, folder| self.describe(name, folder)) }
    }

    /// What the model of that name is, as the files in its folder say. The error has a line for each problem.
    pub fn describe(&self, name: &str, folder: &Path) -> Result<Described, String> {
        let mut report = Report::default();
        let layers = Layers { flags: &self.flags, environment: &self.environment };
        let own = Path::new(OWN_SETTINGS);
        let mut table = match folder.join(own).exists() {
            true => File::read_model(own, folder, &mut report),
            false => Table::default(),
        };
        let mut triton = Triton::default();
        if folder.join(TRITON_SETTINGS).exists() {
            triton = Triton::read(&folder.join(TRITON_SETTINGS), name)?;
        }
        // In a pool its runners are the pool's, whatever Triton's file says of instances.
        let is_pooled = table.get("pool").is_some();
        for (key, value) in std::mem::take(&mut triton.settings) {
            if is_pooled && key == "runners" {
                continue;
            }
            let place = Place::File { file: TRITON_SETTINGS.into(), line: None, key: key.to_owned() };
            table.put_if_absent(key, Setting { place, value });
        }
        let policy = match table.get("versions") {
            Some(setting) => policy(setting, &mut report),
            None => triton.policy.take(),
        };
        let routes = routes::of_table(&table, &mut report);
        // Versions that are spoken of are those that are wanted.
        let spoken_of = routes::versions(&routes).filter_map(|version| version.parse().ok()).collect::<BTreeSet<u64>>();
        let policy = policy.or_else(|| (!spoken_of.is_empty()).then(|| Policy::Named(spoken_of.clone())));
        if let (Some(Policy::Named(named)), Some(setting)) = (&policy, table.get("versions"))
            && let Some(missing) = spoken_of.difference(named).next()
        {
            setting.refuse(&mut report, format!("leaves out {missing}, of which labels, weights or shadow speak"));
        }
        if let (Some(Policy::Named(named)), Some(shadow)) = (&policy, &routes.shadow)
            && named.iter().all(|version| version.to_string() == *shadow)
            && let Some(setting) = table.get("shadow")
        {
            setting.refuse(&mut report, routes::ONLY_A_SHADOW);
        }
        let spec = model::of_folder(name, &table, &self.pools, &layers, &mut report);
        report.finish().map_err(|problems| problems.to_string())?;
        let spec = ModelSpec { source: Source::Onnx(folder.to_owned()), ..spec };
        Ok(Described { policy: policy.unwrap_or_default(), spec, routes, file: triton.file, notes: triton.notes })
    }
}

/// `"latest"`, `"all"`, a number of the latest, or a list of versions.
fn policy(setting: &Setting, report: &mut Report) -> Option<Policy> {
    if setting.is_text("latest") {
        return Some(Policy::default());
    }
    if setting.is_text("all") {
        return Some(Policy::All);
    }
    if let setting::Value::Integer(_) = setting.value {
        return setting.count(VERSIONS, report).map(Policy::Latest);
    }
    let named = setting.whole_numbers().filter(|numbers| !numbers.is_empty());
    if named.is_none() {
        let message = "must be \"latest\", \"all\", how many of the latest, or a list of versions like [1, 3]";
        setting.refuse(report, message);
    }
    named.map(|numbers| Policy::Named(numbers.into_iter().map(|number| number as u64).collect()))
}

/// What Triton's file says that has a meaning here.
#[derive(Debug, Default, PartialEq)]
struct Triton {
    settings: Vec<(&'static str, setting::Value)>,
    policy: Option<Policy>,
    file: Option<String>,
    notes: Vec<String>,
}

/// Says what the model's own file says too.
const TOLD_BY_THE_MODEL: &[&str] = &["input", "output", "batch_input", "batch_output", "default_model_filename"];

/// Back ends whose models are ONNX files.
const ONNX: &[&str] = &["onnxruntime_onnx", "onnxruntime", "onnx_burn", "uncork"];

impl Triton {
    fn read(file: &Path, name: &str) -> Result<Triton, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{TRITON_SETTINGS}: {error}");
        let text = files::text(file, files::MOST).map_err(|error| wrong(&error))?;
        Triton::of(&pbtxt::parse(&text).map_err(|error| wrong(&error))?, name).map_err(|error| wrong(&error))
    }

    fn of(fields: &[(String, Value)], name: &str) -> Result<Triton, String> {
        let mut found = Triton::default();
        let mut without_meaning: Vec<String> = Vec::new();
        let mut runners = 0;
        for (key, value) in fields {
            let scalar = value.scalar().unwrap_or_default();
            match key.as_str() {
                "name" if scalar == name => {}
                "name" => {
                    return Err(format!(
                        "it is of the model {}, but its folder is called {}",
                        Quoted(scalar),
                        Quoted(name)
                    ));
                }
                "platform" | "backend" if scalar.is_empty() || ONNX.contains(&scalar) => {}
                "platform" | "backend" => {
                    return Err(format!("{key} {} is not served here: ONNX files are", Quoted(scalar)));
                }
                "max_batch_size" => {
                    let rows: i128 =
                        scalar.parse().map_err(|_| format!("max_batch_size {} is no number", Quoted(scalar)))?;
                    // To Triton, 0 is a model that it does not batch.
                    found.settings.push(("max_batch_size", setting::Value::Integer(rows.max(1))));
                }
                "default_model_filename" => {
                    let is_name = !scalar.is_empty() && !scalar.contains(['/', '\\']) && scalar != "..";
                    found.file = Some(scalar.to_owned()).filter(|_| is_name);
                    if !is_name {
                        return Err(format!(
                            "default_model_filename {} is no file in the version's folder",
                            Quoted(scalar)
                        ));
                    }
                }
                "version_policy" => found.policy = Some(triton_policy(value)?),
                "instance_group" => {
                    let field = |key: &str| value.fields().iter().find(|(own, _)| own == key).map(|(_, value)| value);
                    let count = field("count").and_then(Value::scalar).map_or(Ok(1), str::parse::<i128>);
                    runners += count.map_err(|_| "instance_group: count is no number".to_owned())?;
                    if field("kind").and_then(Value::scalar) == Some("KIND_GPU") {
                        without_meaning.push("instance_group.kind (say device in model.toml)".to_owned());
                    }
                }
                // Batches form here without being asked for; when, is found out.
                "dynamic_batching" => {
                    let inside = value.fields().iter().map(|(key, _)| format!("dynamic_batching.{key}"));
                    without_meaning.extend(inside);
                }
                key if TOLD_BY_THE_MODEL.contains(&key) => {}
                other => without_meaning.push(other.to_owned()),
            }
        }
        if runners > 0 {
            found.settings.push(("runners", setting::Value::Integer(runners)));
        }
        without_meaning.dedup();
        if !without_meaning.is_empty() {
            found.notes.push(format!("{TRITON_SETTINGS}: without meaning here: {}", without_meaning.join(", ")));
        }
        Ok(found)
    }
}

fn triton_policy(value: &Value) -> Result<Policy, String> {
    let numbers = |value: &Value, key: &str| {
        let of_key = value.fields().iter().filter(|(own, _)| own == key);
        let number = |(_, value): &(String, Value)| value.scalar().and_then(|text| text.parse::<u64>().ok());
        of_key.map(number).collect::<Option<Vec<u64>>>().ok_or_else(|| format!("version_policy: {key} is no number"))
    };
    match value.fields() {
        [(kind, of_kind)] if kind == "latest" => {
            let count = numbers(of_kind, "num_versions")?.first().copied().unwrap_or(1);
            let count = usize::try_from(count).ok().and_then(std::num::NonZeroUsize::new);
            count.map(Policy::Latest).ok_or_else(|| "version_policy: num_versions must be at least 1".into())
        }
        [(kind, _)] if kind == "all" => Ok(Policy::All),
        [(kind, of_kind)] if kind == "specific" => {
            Ok(Policy::Named(numbers(of_kind, "versions")?.into_iter().collect()))
        }
        _ => Err("version_policy must be latest, all or specific".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Triton, String> {
        Triton::of(&pbtxt::parse(text)?, "m")
    }

    #[test]
    fn what_has_a_meaning_of_triton_s_settings_is_taken_and_the_rest_is_named() {
        let found = read(
            r#"name: "m" platform: "onnxruntime_onnx" max_batch_size: 16
               input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] } ]
               instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_GPU } ]
               dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
               version_policy: { specific { versions: [ 1, 3 ] } }
               default_model_filename: "net.onnx"
               optimization { cuda { graphs: true } }"#,
        )
        .unwrap();
        let number = setting::Value::Integer;
        assert_eq!(found.settings, [("max_batch_size", number(16)), ("runners", number(3))]);
        assert_eq!((found.policy, found.file.as_deref()), (Some(Policy::Named([1, 3].into())), Some("net.onnx")));
        let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
        for word in ["dynamic_batching.preferred_batch_size", "max_queue_delay", "optimization", "instance_group.kind"]
        {
            assert!(note.contains(word), "{note}");
        }
        assert!(!note.contains("input"), "{note}");
    }

    #[test]
    fn a_model_that_triton_does_not_batch_is_run_row_by_row() {
        assert_eq!(read("max_batch_size: 0").unwrap().settings, [("max_batch_size", setting::Value::Integer(1))]);
        assert_eq!(read("version_policy { latest { num_versions: 2 } }").unwrap().policy.unwrap(), {
            Policy::Latest(std::num::NonZeroUsize::new(2).unwrap())
        });
        assert_eq!(read("version_policy { all {} }").unwrap().policy, Some(Policy::All));
    }

    #[test]
    fn what_is_not_served_here_is_refused() {
        for (text, words) in [
            ("name: \"other\"", "its folder is called 'm'"),
            ("platform: \"tensorrt_plan\"", "'tensorrt_plan' is not served"),
            ("backend: \"python\"", "'python' is not served"),
            ("max_batch_size: many", "is no number"),
            ("default_model_filename: \"../../etc/passwd\"", "no file in the version's folder"),
            ("version_policy { latest { num_versions: 0 } }", "at least 1"),
            ("version_policy { newest {} }", "latest, all or specific"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
