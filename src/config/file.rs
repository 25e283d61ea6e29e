//! The configuration file: its tables, every value with its line; unknown keys noted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use super::problem::{Place, Report, did_you_mean};
use super::setting::{Setting, Value};
use crate::files;

/// The values of one table, by key.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Table {
    /// Where the table stands.
    pub(super) place: Option<Place>,
    values: BTreeMap<String, Setting>,
    /// The inline table `synthetic`, if it is one.
    pub(super) synthetic: Option<Box<Table>>,
}

impl Table {
    /// Sets `key`, unless it is set.
    pub(super) fn put_if_absent(&mut self, key: &str, setting: Setting) {
        self.values.entry(key.to_owned()).or_insert(setting);
    }

    /// The setting of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Setting> {
        self.values.get(key)
    }
}

/// A file, taken apart and not checked yet.
#[derive(Debug, Default)]
pub(super) struct File {
    /// `[server]`
    pub(super) server: Table,
    /// The `[[model]]` tables, in order.
    pub(super) models: Vec<Table>,
    /// The `[[pool]]` tables, in order.
    pub(super) pools: Vec<Table>,
    /// The folder in which relative paths start.
    pub(super) folder: PathBuf,
    /// Whether it was read and nothing is in it.
    pub(super) is_empty: bool,
}

impl File {
    /// Reads `path`, seen from `folder`.
    pub(super) fn read(path: &Path, folder: &Path, report: &mut Report) -> File {
        let whole = folder.join(path);
        let mut file = File { folder: whole.parent().unwrap_or(folder).to_owned(), ..File::default() };
        match files::text(&whole, files::MOST) {
            Ok(text) => Walk { path, text: &text, report }.document(&mut file),
            Err(error) => {
                let place = Place::File { file: path.to_owned(), line: None, key: String::new() };
                report.note(place, format!("cannot be read: {error}"));
            }
        }
        file
    }
}

impl File {
    /// Reads `path`, seen from `folder`, as the settings of one model.
    pub(super) fn read_model(path: &Path, folder: &Path, report: &mut Report) -> Table {
        match files::text(&folder.join(path), files::MOST) {
            Ok(text) => Walk { path, text: &text, report }.only_model(),
            Err(error) => {
                let place = Place::File { file: path.to_owned(), line: None, key: String::new() };
                report.note(place, format!("cannot be read: {error}"));
                Table::default()
            }
        }
    }
}

/// What is needed everywhere on the walk through a document.
struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    report: &'a mut Report,
}

impl<'a> Walk<'a> {
    /// The document, if it is one: what is missing or unknown in another would only be a consequence.
    fn parsed(&mut self) -> Option<Spanned<DeTable<'a>>> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let place = self.place(error.span().unwrap_or_default(), "");
            self.report.note(place, format!("not TOML: {}", error.message().lines().collect::<Vec<_>>().join("; ")));
        }
        errors.is_empty().then_some(document)
    }

    fn only_model(&mut self) -> Table {
        let document = self.parsed();
        document.map_or_else(Table::default, |document| self.table(document.get_ref(), 0..0, "", keys::MODEL_IN_FOLDER))
    }

    fn document(&mut self, file: &mut File) {
        let Some(document) = self.parsed() else { return };
        file.is_empty = document.get_ref().is_empty();
        for (key, value) in document.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("server", DeValue::Table(table)) => {
                    file.server = self.table(table, value.span(), "server", &[keys::SERVER]);
                }
                ("model", DeValue::Array(models)) => {
                    for (i, model) in models.iter().enumerate() {
                        let name = format!("model[{i}]");
                        match model.get_ref() {
                            DeValue::Table(table) => file.models.push(self.model(table, model.span(), &name)),
                            _ => self.refuse(model.span(), &name, "must be a table, written as [[model]]"),
                        }
                    }
                }
                ("pool", DeValue::Array(pools)) => {
                    for (i, pool) in pools.iter().enumerate() {
                        let name = format!("pool[{i}]");
                        match pool.get_ref() {
                            DeValue::Table(table) => {
                                file.pools.push(self.table(table, pool.span(), &name, &[keys::POOL]));
                            }
                            _ => self.refuse(pool.span(), &name, "must be a table, written as [[pool]]"),
                        }
                    }
                }
                ("server", _) => self.refuse(key.span(), "server", "must be a table, written as [server]"),
                ("pool", _) => {
                    self.refuse(key.span(), "pool", "must be a list of tables, each written as [[pool]]");
                }
                ("model", _) => {
                    self.refuse(key.span(), "model", "must be a list of tables, each written as [[model]]");
                }
                (unknown, value) => {
                    let hint = did_you_mean(unknown, ["server", "model", "pool"]);
                    // A key of [server] is no list of tables.
                    let home = elsewhere(unknown, "").filter(|_| !matches!(value, DeValue::Array(_)));
                    self.refuse(key.span(), unknown, &format!("unknown key{}", home.unwrap_or(hint)));
                }
            }
        }
    }

    fn model(&mut self, table: &DeTable<'_>, span: Range<usize>, name: &str) -> Table {
        let mut model = self.table(table, span, name, keys::MODEL);
        let synthetic = table.iter().find(|(key, _)| key.get_ref() == "synthetic");
        if let Some((_, value)) = synthetic
            && let DeValue::Table(table) = value.get_ref()
        {
            let name = format!("{name}.synthetic");
            model.synthetic = Some(Box::new(self.table(table, value.span(), &name, &[keys::SYNTHETIC])));
        }
        model
    }

    /// The values of a table; `known` lists its keys.
    fn table(&mut self, table: &DeTable<'_>, span: Range<usize>, name: &str, known: &[&[&str]]) -> Table {
        let mut found = Table { place: Some(self.place(span, name)), ..Table::default() };
        for (key, value) in table {
            let (key, span) = (key.get_ref().as_ref(), key.span());
            let path = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
            if known.iter().any(|keys| keys.contains(&key)) {
                let setting = Setting { place: self.place(span, &path), value: self.value(value) };
                found.values.insert(key.to_owned(), setting);
            } else {
                let home = if name.is_empty() { outside_the_folder(key) } else { elsewhere(key, name) };
                let hint = home.unwrap_or_else(|| did_you_mean(key, known.concat()));
                self.refuse(span, &path, &format!("unknown key{hint}"));
            }
        }
        found
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Value {
        let written = || Value::Other(self.text.get(value.span()).unwrap_or("a value").to_owned());
        match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(n) => {
                i128::from_str_radix(n.as_str(), n.radix()).map_or_else(|_| written(), Value::Integer)
            }
            DeValue::Array(items) => Value::List(items.iter().map(|item| self.value(item)).collect()),
            DeValue::Table(table) => {
                let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), self.value(value)));
                // As it is written there, on one line.
                let text = self.text.get(value.span()).unwrap_or("a table");
                let shown = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let shown = shown.replace(char::is_control, "\u{fffd}");
                Value::Table(entries.collect(), shown)
            }
            DeValue::Float(x) => x.as_str().parse().map_or_else(|_| written(), Value::Float),
            _ => written(),
        }
    }

    fn refuse(&mut self, span: Range<usize>, key: &str, message: &str) {
        let place = self.place(span, key);
        self.report.note(place, message);
    }

    fn place(&self, span: Range<usize>, key: &str) -> Place {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
        Place::File { file: self.path.to_owned(), line: Some(line), key: key.to_owned() }
    }
}

/// Where a key that is unknown in `table` would be at home.
fn elsewhere(key: &str, table: &str) -> Option<String> {
    let in_server = keys::SERVER.contains(&key);
    let in_model = keys::MODEL.iter().any(|keys| keys.contains(&key));
    match () {
        () if in_server && table != "server" => Some("; it belongs under [server]".into()),
        () if in_model && !table.starts_with("model") => Some("; it belongs under [[model]]".into()),
        () => None,
    }
}

/// What to do about a key that does not belong into a `model.toml`.
fn outside_the_folder(key: &str) -> Option<String> {
    let why = match key {
        "model" => "the settings of this one model stand here without a table: leave the line [[model]] out",
        "name" => "the model is named after its folder: leave the key out",
        "version" => "a version is named after its folder, and 'versions' says which are served",
        "path" => "a version's file lies in its folder, as 1/model.onnx: leave the key out",
        "server" | "pool" => "it belongs into the configuration file",
        key if keys::SERVER.contains(&key) => "it belongs under [server] of the configuration file",
        key if keys::MODEL.iter().any(|keys| keys.contains(&key)) => {
            "the models of a folder are ONNX files that run in the server; others belong under [[model]] of the configuration file"
        }
        _ => return None,
    };
    Some(format!("; {why}"))
}
