//! The settings of models on other servers: where they are, and what they are shown.

use std::path::Path;

use super::file::Table;
use super::problem::Report;
use super::setting::{Setting, Value};
use super::worker::START;
use crate::files;
use crate::quote::Quoted;
use crate::upstream::{Address, Settings, Token};

/// `upstream = "http://host:8080"`, or a list of such: one model, on one or several servers, called `name` where they do not say.
pub(super) fn settings(
    setting: &Setting,
    name: &str,
    table: &Table,
    folder: &Path,
    report: &mut Report,
) -> Option<Settings> {
    let texts = match &setting.value {
        Value::Text(text) => vec![text.clone()],
        _ => setting.texts(report)?,
    };
    let mut servers = Vec::new();
    for text in &texts {
        match Address::parse(text, name) {
            Ok(address) => servers.push(address),
            Err(why) => setting.refuse(report, format!("{} {why}", Quoted(text))),
        }
    }
    if texts.is_empty() {
        setting.refuse(report, "must name a server, like \"http://host:8080\"");
    } else if servers.windows(2).any(|pair| pair[0].protocol() != pair[1].protocol()) {
        setting.refuse(
            report,
            "must name servers that speak one protocol: all with /v2, all with /v1, or all with other paths",
        );
        return None;
    }
    let token = table.get("upstream_token_file").map(|file| token(file, folder, report));
    let start_timeout = table.get("start_timeout_ms").map(|setting| setting.millis(START, report));
    if servers.len() != texts.len() || servers.is_empty() {
        return None;
    }
    let settings = Settings::new(servers);
    let start_timeout = start_timeout.unwrap_or(Some(settings.start_timeout))?;
    Some(Settings { token: token.map_or(Some(None), |token| token.map(Some))?, start_timeout, ..settings })
}

/// The first line of a file.
fn token(setting: &Setting, folder: &Path, report: &mut Report) -> Option<Token> {
    let file = folder.join(setting.text(report)?);
    match files::text(&file, files::MOST) {
        Ok(text) => match text.lines().next().and_then(|line| Token::new(line.trim())) {
            Some(token) => return Some(token),
            None => setting.refuse(report, "must have a token in its first line, of characters that a header may have"),
        },
        Err(error) => setting.refuse(report, format!("cannot be read: {error}")),
    }
    None
}

/// The address that an argument of the command line is.
pub(super) fn as_argument(argument: &Path) -> Option<&str> {
    argument.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"))
}

/// The name of the model in an address that has one.
pub(super) fn name(address: &str) -> Option<&str> {
    let mut parts = address.trim_end_matches('/').rsplit('/');
    let last = parts.next()?;
    let name = match (parts.next()?, parts.next()) {
        ("versions", Some(name)) => name,
        // What stands behind `//` is a host.
        ("", _) => return None,
        _ => last,
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_the_command_line_names_its_model() {
        for (address, found) in [
            ("http://h:1/v2/models/churn", Some("churn")),
            ("http://h:1/v1/models/churn/", Some("churn")),
            ("https://h/v2/models/churn/versions/3", Some("churn")),
            ("http://h/score", Some("score")),
            ("http://h:1", None),
            ("http://h:1/", None),
        ] {
            assert_eq!(name(address), found, "{address}");
        }
    }
}
