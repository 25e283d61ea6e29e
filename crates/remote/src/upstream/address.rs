//! What an address says: where a server is, which model of it is meant, and in which protocol.

use std::fmt;

use http::Uri;

/// How batches are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The Open Inference Protocol v2; tensors in binary where the server takes that, else in JSON.
    V2,
    /// TensorFlow Serving's row format: `{"instances": […]}` to `/v1/models/M:predict`. Requests are JSON documents.
    Predict,
    /// A JSON list, posted to the address itself and answered with a list. Requests are JSON documents.
    List,
}

/// One model on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    protocol: Protocol,
    /// With scheme and authority.
    model: Uri,
    /// What stands in front of the protocol's paths.
    root: String,
}

impl Address {
    /// The model that `text` names:
    ///
    /// | address | model |
    /// | --- | --- |
    /// | `http://host:port` | `name`, in the Open Inference Protocol |
    /// | `http://host:port/v2/models/M`, `…/M/versions/V` | `M`, in the same |
    /// | `http://host:port/v1/models/M`, `…/M/versions/V` | `M`, in TensorFlow Serving's protocol |
    /// | `http://host:port/models/M` | `M` of an uncork, in the Open Inference Protocol |
    /// | `http://host:port/any/other/path` | what takes a JSON list there |
    ///
    /// In front of `/v2` and `/v1` there may be a path of a proxy. Fails with a sentence for the operator.
    pub fn parse(text: &str, name: &str) -> Result<Address, String> {
        let uri: Uri = text.parse().map_err(|error| format!("is no address: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("must begin with http:// or https://".into());
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("must not have a user or a password ('@'): name a token in upstream_token_file".into());
        }
        if uri.query().is_some() {
            return Err("must not have a query ('?')".into());
        }
        let path = uri.path().trim_end_matches('/');
        let found = [("/v2/models/", Protocol::V2), ("/v1/models/", Protocol::Predict)];
        let found = found.into_iter().find_map(|(mark, protocol)| Some((path.find(mark)?, protocol)));
        let (root, protocol, model) = match found {
            Some((at, protocol)) => (&path[..at], protocol, path.to_owned()),
            None if path.is_empty() => ("", Protocol::V2, format!("/v2/models/{name}")),
            None if path.starts_with("/models/") => ("", Protocol::V2, format!("/v2{path}")),
            None => ("", Protocol::List, path.to_owned()),
        };
        if protocol != Protocol::List && !is_model(&model[root.len() + "/v2/models/".len()..]) {
            return Err("must end with the model's name, or with its name and /versions/ and a version".into());
        }
        let root = root.to_owned();
        Ok(Address { protocol, model: with_path(&uri, &model)?, root })
    }

    /// How batches are written.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Where the model is described, where that is.
    pub(super) fn model(&self) -> Uri {
        self.model.clone()
    }

    /// Where the model says whether it is ready.
    pub(super) fn health(&self) -> Uri {
        match self.protocol {
            Protocol::V2 => self.behind("/ready"),
            Protocol::Predict | Protocol::List => self.model(),
        }
    }

    /// Where batches go.
    pub(super) fn batches(&self) -> Uri {
        match self.protocol {
            Protocol::V2 => self.behind("/infer"),
            Protocol::Predict => self.behind(":predict"),
            Protocol::List => self.model(),
        }
    }

    /// Where an uncork takes requests that are no tensors, of a model in the Open Inference Protocol. To one that takes bodies whole a list
    /// of them is announced.
    pub(super) fn opaque(&self, takes_whole: bool) -> Uri {
        let behind = &self.model.path()[self.root.len() + "/v2".len()..];
        let query = if takes_whole { "?instances=rows" } else { "" };
        with_path(&self.model, &format!("{}{behind}{query}", self.root)).expect("a part of an address")
    }

    /// Where a server of the Open Inference Protocol describes itself.
    pub(super) fn server(&self) -> Uri {
        with_path(&self.model, &format!("{}/v2", self.root)).expect("a part of an address")
    }

    fn behind(&self, what: &str) -> Uri {
        with_path(&self.model, &format!("{}{what}", self.model.path())).expect("an address and a word")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.model.fmt(f)
    }
}

/// `M` or `M/versions/V`.
fn is_model(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        [name] => !name.is_empty() && !name.contains(':'),
        [name, "versions", version] => !name.is_empty() && !version.is_empty() && !version.contains(':'),
        _ => false,
    }
}

fn with_path(uri: &Uri, path: &str) -> Result<Uri, String> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|error| format!("is no address: {error}"))?);
    Uri::from_parts(parts).map_err(|error| format!("is no address: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_model_and_protocol() {
        let cases = [
            ("http://h:1", Protocol::V2, "http://h:1/v2/models/own/infer", "http://h:1/v2/models/own/ready"),
            ("https://h/", Protocol::V2, "https://h/v2/models/own/infer", "https://h/v2/models/own/ready"),
            ("http://h/v2/models/m", Protocol::V2, "http://h/v2/models/m/infer", "http://h/v2/models/m/ready"),
            (
                "http://h/p/v2/models/m/versions/3",
                Protocol::V2,
                "http://h/p/v2/models/m/versions/3/infer",
                "http://h/p/v2/models/m/versions/3/ready",
            ),
            ("http://h/v1/models/m/", Protocol::Predict, "http://h/v1/models/m:predict", "http://h/v1/models/m"),
            ("http://h/models/m", Protocol::V2, "http://h/v2/models/m/infer", "http://h/v2/models/m/ready"),
            ("http://h/score", Protocol::List, "http://h/score", "http://h/score"),
        ];
        for (text, protocol, batches, health) in cases {
            let address = Address::parse(text, "own").unwrap();
            assert_eq!(address.protocol(), protocol, "{text}");
            assert_eq!((&*address.batches().to_string(), &*address.health().to_string()), (batches, health));
        }
        let proxied = Address::parse("http://h/p/v2/models/m", "own").unwrap();
        assert_eq!(proxied.server().to_string(), "http://h/p/v2");
        assert_eq!(proxied.opaque(false).to_string(), "http://h/p/models/m");
        assert_eq!(proxied.opaque(true).to_string(), "http://h/p/models/m?instances=rows");
    }

    #[test]
    fn what_is_no_address_of_a_model_is_refused_in_words() {
        for (text, why) in [
            ("h:1", "must begin with http:// or https://"),
            ("ftp://h", "must begin with http:// or https://"),
            ("http://h/v1/models/m:predict", "must end with the model's name"),
            ("http://h/v2/models/m/infer", "must end with the model's name"),
            ("http://h/score?x=1", "must not have a query"),
            ("http://h h", "is no address"),
        ] {
            let error = Address::parse(text, "own").unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let nameless = Address::parse("http://h/v2/models/", "own").unwrap();
        assert_eq!(nameless.protocol(), Protocol::List, "it is a path like any other");
    }
}
