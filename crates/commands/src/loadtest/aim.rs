//! What is asked of which server: the flags about targets and bodies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use uncork_loadtest::{
    Bodies, Body, Exposition, Form, GRPC_INFER, Place, Same, Target, Template, Tolerance, Trust, Url, message,
    without_values,
};

/// Bytes of a file of bodies or answers: they are held in memory.
const MOST_BYTES: u64 = 1 << 30;

/// The flags about what is asked.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The server's base, as in http://127.0.0.1:8080, https://… or unix:/run/uncork.sock, or the very URL to ask; no other is ever talked to
    #[arg(value_name = "URL", required_unless_present = "compare")]
    url: Option<String>,

    /// Model served by the Open Inference Protocol v2 below the base [default: the only one]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// How random requests are written
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "json", conflicts_with_all = ["body", "request", "get"])]
    form: Written,

    /// Dimensions of a row for an input that leaves them open, as in tokens:64; may be given several times
    #[arg(long, value_name = "INPUT:DIMS", value_parser = shape, conflicts_with_all = ["body", "get"])]
    shape: Vec<(String, Vec<usize>)>,

    /// Speak HTTP/2: by prior knowledge, or by name over TLS; one request at a time on each connection
    #[arg(long)]
    http2: bool,

    /// Of an https:// URL: file in PEM with the roots of its certificate [default: those that the system knows]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// Of an https:// URL: take any certificate
    #[arg(long)]
    insecure: bool,

    /// File of bodies instead of random ones: one JSON text a line, or the whole file is one
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    body: Option<PathBuf>,

    /// With --body: file of the answers that the bodies should have, one JSON text a line
    #[arg(long, value_name = "FILE", requires = "body")]
    expect: Option<PathBuf>,

    /// With expected answers: numbers may be off by this, or by a thousandth if that is more
    #[arg(long, value_name = "X", default_value = "0.0001", value_parser = crate::values::number(0.0..=1e9))]
    tolerance: f64,

    /// File with a whole request: POST /path, headers, an empty line, a body, with {{i}}, {{random}}, {{random:0..9}} in it
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    request: Option<PathBuf>,

    /// Send GET to the very URL, without a body
    #[arg(long, conflicts_with_all = ["model", "body", "request"])]
    get: bool,

    /// A header of each request, as in 'Authorization: Bearer …'; may be given several times. What --request has itself stays
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
}

/// How random requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Written {
    /// Open Inference Protocol v2, JSON
    Json,
    /// The same with binary tensors both ways, the default of Triton's clients
    Binary,
    /// TensorFlow Serving's :predict, row by row
    Predict,
    /// Open Inference Protocol v2 over gRPC, raw tensors; HTTP/2 is then spoken
    Grpc,
}

impl From<Written> for Form {
    fn from(written: Written) -> Form {
        match written {
            Written::Json => Form::Json,
            Written::Binary => Form::Binary,
            Written::Predict => Form::Predict,
            Written::Grpc => Form::Grpc,
        }
    }
}

/// A target, and where it is.
pub(super) struct Aim {
    pub(super) place: Place,
    pub(super) url: Url,
    pub(super) target: Box<dyn Target>,
    pub(super) model: Option<String>,
    /// What is asked, in words.
    pub(super) words: String,
    /// Whether answers are compared with expected ones.
    pub(super) compares: bool,
    headers: Vec<(String, String)>,
}

impl Aim {
    /// The server's own metrics of this moment, if it is one of uncork's.
    pub(super) fn exposition(&self) -> Option<Exposition> {
        self.model.as_ref().and_then(|_| Exposition::of(&self.place, &self.url, &self.headers))
    }

    /// How long the model's answers may take, if the server says so.
    pub(super) fn max_latency_seconds(&self) -> Option<f64> {
        self.exposition()?.max_latency_seconds(self.model.as_deref()?)
    }
}

impl Flags {
    /// Finds the server, and prepares what is asked of it, for requests of these numbers of rows.
    ///
    /// # Errors
    /// What is wrong with the flags, a file, or the server.
    pub(super) fn take(&self, sizes: &[usize], seed: u64) -> Result<Aim, String> {
        let url = Url::read(self.url.as_deref().unwrap_or_default())?;
        if self.request.is_some() && (self.expect.is_some() || !self.shape.is_empty()) {
            return Err("--request says all that is asked; leave --expect and --shape out".into());
        }
        let trust = match &self.ca {
            _ if self.insecure => Trust::Anybody,
            Some(file) => Trust::File(file.clone()),
            None => Trust::System,
        };
        if !url.is_secured && trust != Trust::System {
            return Err(
                "--ca and --insecure speak of certificates, and connections are secured at https:// only".into()
            );
        }
        let is_grpc = self.form == Written::Grpc;
        let is_base = url.path == "/" || self.model.is_some();
        if !is_base && self.body.is_none() && self.request.is_none() && !self.get {
            return Err(format!(
                "{} is a path of its own: say what to send with --body FILE or --get, or give the server's base and --model",
                without_values(&url.path)
            ));
        }
        // Whatever is wrong with files is told before the server is asked.
        let template = self.request.as_deref().map(|file| self.template(file, &url, seed)).transpose()?;
        let own_bodies = self.body.as_deref().map(|file| self.bodies(file)).transpose()?;
        let place = url.connect(&trust, self.http2 || is_grpc)?;
        if url.is_secured {
            place.secure()?;
        }
        if let (Some(file), Some(template)) = (&self.request, template) {
            return Ok(self.aim(place, url, Box::new(template), None, format!("the request of {}", file.display())));
        }
        if self.get {
            let bytes = message("GET", &url.path, &url.host, &self.header, None);
            let words = format!("GET {}", without_values(&url.path));
            return Ok(self.aim(place, url, Box::new(Same::new(bytes)), None, words));
        }
        let model = match (&self.model, is_base) {
            (Some(model), _) => Some(model.clone()),
            (None, true) => Some(uncork_loadtest::only_model(&place, &url, &self.header)?),
            (None, false) => None,
        };
        let bodies = match (own_bodies, &model) {
            (Some(bodies), _) => BTreeMap::from([(1, bodies)]),
            (None, Some(model)) => {
                let metadata = match is_grpc {
                    true => uncork_loadtest::metadata_by_grpc(&place, &self.header, model)?,
                    false => uncork_loadtest::metadata(&place, &url, &self.header, model)?,
                };
                uncork_loadtest::random_bodies(&metadata, &self.shape, sizes, self.form.into(), seed)?
            }
            (None, None) => return Err("there is nothing to send; give --model, --body, --request or --get".into()),
        };
        let path = match &model {
            Some(_) if is_grpc => GRPC_INFER.to_owned(),
            Some(model) if self.form == Written::Predict => url.below(&format!("/v1/models/{model}:predict")),
            Some(model) => url.below(&format!("/v2/models/{model}/infer")),
            None => url.path.clone(),
        };
        let mut headers = self.header.clone();
        let is_text = |body: &Body| body.json.is_none() && matches!(body.bytes.first(), Some(b'{' | b'[' | b'"'));
        let is_json = bodies.values().flatten().all(is_text);
        if is_grpc {
            headers.extend(uncork_loadtest::grpc_headers());
        } else if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            let kind = if is_json { "application/json" } else { "application/octet-stream" };
            headers.push(("content-type".into(), kind.into()));
        }
        let compares = bodies.values().flatten().any(|body| body.expected.is_some());
        let tolerance = Tolerance { absolute: self.tolerance, ..Tolerance::default() };
        let whole = |body: &Body| {
            let length = body.json.map(|json| ("inference-header-content-length".to_owned(), json.to_string()));
            let headers: Vec<_> = headers.iter().cloned().chain(length).collect();
            message("POST", &path, &url.host, &headers, Some(&body.bytes))
        };
        let target = Box::new(Bodies::new(bodies, tolerance, whole));
        let shown = without_values(&path);
        let words = match &self.body {
            Some(file) => format!("POST {shown} with the bodies of {}", file.display()),
            None if is_grpc => "ModelInfer over gRPC with random tensors".to_owned(),
            None => format!("POST {shown} with random bodies"),
        };
        Ok(Aim { compares, ..self.aim(place, url, target, model, words) })
    }

    /// The request of a file.
    fn template(&self, file: &Path, url: &Url, seed: u64) -> Result<Template, String> {
        let no_text = |_| format!("{} is not text (UTF-8); --body FILE sends a body of any bytes", file.display());
        let text = String::from_utf8(read(file)?).map_err(no_text)?;
        let template = Template::read(&text, &url.host, &self.header, |path| url.below(path), seed);
        template.map_err(|why| format!("{}: {why}", file.display()))
    }

    /// The bodies of a file, with their answers.
    fn bodies(&self, file: &Path) -> Result<Vec<Body>, String> {
        let answers = self.expect.as_ref().map(|path| Ok::<_, String>((path.as_path(), read(path)?))).transpose()?;
        let answers = answers.map(|(path, text)| (path, String::from_utf8_lossy(&text).into_owned()));
        let answers = answers.as_ref().map(|(path, text)| (*path, text.as_str()));
        uncork_loadtest::read_bodies(file, &read(file)?, answers)
    }

    fn aim(&self, place: Place, url: Url, target: Box<dyn Target>, model: Option<String>, mut words: String) -> Aim {
        if self.http2 {
            words += ", over HTTP/2";
        }
        if url.is_secured {
            words += ", secured by TLS";
        }
        Aim { place, url, target, model, words, compares: false, headers: self.header.clone() }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| {
        let is_text = file.to_string_lossy().starts_with(['{', '[']);
        let hint = if is_text { ": give the name of a file that has it, or <(echo '…')" } else { "" };
        format!("{} cannot be read: {error}{hint}", file.display())
    };
    let length = fs::metadata(file).map_err(unreadable)?.len();
    if length > MOST_BYTES {
        return Err(format!("{} has {length} bytes; {MOST_BYTES} are the most, so send a part of it", file.display()));
    }
    fs::read(file).map_err(unreadable)
}

/// `tokens:64`, `image:3,224,224`
fn shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, dims) = text.rsplit_once(':').ok_or("must be an input and the dimensions of a row, as in tokens:64")?;
    let dims: Result<Vec<usize>, _> = dims.split([',', 'x']).map(|dim| dim.trim().parse()).collect();
    let dims = dims.ok().filter(|dims| dims.iter().all(|dim| *dim > 0));
    Ok((name.to_owned(), dims.ok_or("must be dimensions with commas between them, as in image:3,224,224")?))
}

/// `Name: value`
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be a name and a value, as in 'X-Tenant: a'")?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) || value.chars().any(char::is_control) {
        return Err("is no header that HTTP knows, as in 'X-Tenant: a'".into());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}
