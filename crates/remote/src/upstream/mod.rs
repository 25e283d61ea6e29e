//! A model that is on other inference servers: each batch goes out as one request, and its answer is split.

mod address;
mod client;
mod lists;
mod oip;
mod rota;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{StatusCode, Uri};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

pub use self::address::{Address, Protocol};
use self::client::{Answer, Client, JSON_LENGTH, Silence};
use self::lists::Form;
use self::rota::{End, Rota};
use crate::opaque;
use crate::runner::{Remote, RunnerError, Signature};
use crate::tensor::Tensors;

/// A server that is left out is asked how it does after so long, and after twice as long each time.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(5);
/// An answer about a server's health that takes longer is none.
const LOOK: Duration = Duration::from_secs(2);
/// While no server is there, somebody waits: this often they are told for what.
const TELL: Duration = Duration::from_secs(2);
/// Where the words of a server that refuses rows are cut.
const WORDS: usize = 300;

/// Where the servers are, and what to ask of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The same model on each of them, in the same protocol; at least one.
    pub servers: Vec<Address>,
    /// What each server is shown.
    pub token: Option<Token>,
    /// One of the servers must answer within that, when the model is loaded.
    pub start_timeout: Duration,
}

impl Settings {
    /// Servers that want no token, of which one must answer within a minute.
    pub fn new(servers: Vec<Address>) -> Settings {
        Settings { servers, token: None, start_timeout: Duration::from_secs(60) }
    }
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// `None` where there is none, or where a header cannot have it.
    pub fn new(text: &str) -> Option<Token> {
        let value = HeaderValue::try_from(format!("Bearer {text}")).ok().filter(|_| !text.is_empty())?;
        Some(Token(value))
    }
}

impl fmt::Debug for Token {
    /// Without the token: settings are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A model on other servers, as a [`Remote`].
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.0.settings).finish()
    }
}

struct Inner {
    settings: Settings,
    /// A batch that is not answered within that is lost, and its server left out until it answers again.
    most: Duration,
    signature: Signature,
    /// Whether tensors travel in binary.
    is_binary: bool,
    /// Whether the model is an uncork's that takes no tensors: it gets documents at a path of its own.
    is_opaque: bool,
    /// Whether that one reads `instances` itself.
    takes_whole: bool,
    client: Client,
    rota: Mutex<Rota>,
    /// Where servers are looked after that are left out.
    handle: Handle,
}

/// A batch that a server has. Dropped without a word, it was not answered in time.
struct Out<'a> {
    inner: &'a Arc<Inner>,
    place: usize,
    end: End,
    why: String,
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        let left_out = self.inner.rota().back(self.place, self.end);
        if let Some(pause) = left_out {
            tracing::warn!(
                upstream = %self.inner.settings.servers[self.place],
                "left out until it answers again: {}", self.why
            );
            let (inner, place) = (Arc::downgrade(self.inner), self.place);
            self.inner.handle.spawn(look_after(inner, place, pause));
        }
    }
}

/// What one server made of a batch.
enum Said {
    Outputs(Tensors),
    /// The rows or the server are at fault: nobody else is asked.
    Error(RunnerError),
    /// It did not work on it: another one may.
    Another(String),
}

impl Upstream {
    /// Waits until one of the servers is ready, and asks it what the model takes and gives. A batch that is not answered within
    /// `most` is lost, and its server left out until it answers again. To be called within the runtime in which the model runs.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn connect(settings: Settings, most: Duration) -> Result<Upstream, String> {
        let client = Client::new(settings.token.clone().map(|Token(value)| value))?;
        let rota = Mutex::new(Rota::new(settings.servers.len()));
        let mut inner = Inner {
            signature: opaque::signature(),
            settings,
            most,
            is_binary: false,
            is_opaque: false,
            takes_whole: false,
            client,
            rota,
            handle: Handle::current(),
        };
        let first = inner.first_ready().await?;
        if inner.protocol() == Protocol::V2 {
            let what = inner.describe(first).await;
            let server = &inner.settings.servers[first];
            (inner.signature, inner.is_binary, inner.takes_whole) = what.map_err(|why| format!("{server}: {why}"))?;
            inner.is_opaque = opaque::is_opaque(&inner.signature);
        }
        Ok(Upstream(Arc::new(inner)))
    }
}

impl Inner {
    fn rota(&self) -> std::sync::MutexGuard<'_, Rota> {
        self.rota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn protocol(&self) -> Protocol {
        self.settings.servers[0].protocol()
    }

    /// Where batches go.
    fn target(&self, place: usize) -> Uri {
        let server = &self.settings.servers[place];
        if self.is_opaque { server.opaque(self.takes_whole) } else { server.batches() }
    }

    /// Whether the server answers; if not, why.
    async fn look(&self, place: usize) -> Result<(), String> {
        let answer = timeout(LOOK, self.client.get(self.settings.servers[place].health()))
            .await
            .map_err(|_| "it does not answer".to_owned())?;
        let status = answer.map_err(|why| why.to_string())?.status;
        // Behind an address that takes lists there may be no GET.
        let is_well = match self.protocol() {
            Protocol::V2 | Protocol::Predict => status.is_success(),
            Protocol::List => status.is_success() || status.is_client_error(),
        };
        if is_well { Ok(()) } else { Err(format!("the model is not ready there: {status}")) }
    }

    /// Waits for a server that is ready.
    async fn first_ready(&self) -> Result<usize, String> {
        let (start, mut told) = (Instant::now(), Instant::now());
        loop {
            let mut reasons = Vec::new();
            for (place, server) in self.settings.servers.iter().enumerate() {
                match self.look(place).await {
                    Ok(()) => return Ok(place),
                    Err(why) => reasons.push(format!("{server}: {why}")),
                }
            }
            let reasons = reasons.join("; ");
            if start.elapsed() >= self.settings.start_timeout {
                return Err(format!("no upstream server is ready: {reasons}"));
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                tracing::info!("waiting for an upstream server: {reasons}");
            }
            sleep(FIRST_LOOK).await;
        }
    }

    /// What the model takes and gives, whether tensors may be in binary, and whether it takes bodies whole, by the server at `place`.
    async fn describe(&self, place: usize) -> Result<(Signature, bool, bool), String> {
        let metadata: oip::Metadata = self.read(self.settings.servers[place].model()).await?;
        // Who says nothing of itself takes JSON.
        let about: Result<oip::About, _> = self.read(self.settings.servers[place].server()).await;
        let is_binary = about.is_ok_and(|about| about.extensions.iter().any(|name| name == oip::BINARY));
        Ok((oip::signature(&metadata)?, is_binary, metadata.takes_whole()))
    }

    async fn read<T: for<'a> Deserialize<'a>>(&self, uri: Uri) -> Result<T, String> {
        let answer = timeout(LOOK, self.client.get(uri.clone())).await.map_err(|_| format!("{uri} does not answer"))?;
        let Answer { status, body, .. } = answer.map_err(|why| why.to_string())?;
        if !status.is_success() {
            return Err(format!("{uri} answers {status}"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("{uri} does not say what it should: {error}"))
    }

    /// How a batch is a list of documents, if it is one.
    fn form(&self) -> Option<Form> {
        match self.protocol() {
            Protocol::V2 => self.is_opaque.then_some(Form::Predict),
            Protocol::Predict => Some(Form::Predict),
            Protocol::List => Some(Form::List),
        }
    }

    fn encode(&self, batch: &Tensors) -> Result<(Bytes, Option<usize>), RunnerError> {
        let (body, json) = match self.form() {
            Some(form) => (lists::encode(batch, form)?, None),
            None => oip::encode(batch, self.is_binary)?,
        };
        Ok((body.into(), json))
    }

    fn decode(&self, answer: &Answer, rows: usize) -> Result<Tensors, RunnerError> {
        let json = answer.headers.get(JSON_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        match self.form() {
            Some(form) => lists::decode(&answer.body, rows, form),
            None => oip::decode(&answer.body, json, rows, &self.signature),
        }
    }

    /// Sends a batch to servers, one after the other, until one works on it.
    async fn send(self: &Arc<Self>, batch: &Tensors, most: Duration) -> Result<Tensors, RunnerError> {
        let (body, json) = self.encode(batch)?;
        let (mut tried, mut reasons) = (Vec::new(), Vec::new());
        loop {
            let Some(place) = self.rota().pick(&tried) else {
                let reasons: Vec<String> = reasons;
                let reasons = if reasons.is_empty() { "none answers".to_owned() } else { reasons.join("; ") };
                return Err(RunnerError::Absent(format!("no upstream server takes a batch: {reasons}")));
            };
            let why = "a batch was not answered in time".to_owned();
            let mut out = Out { inner: self, place, end: End::Silent, why };
            match self.ask(&mut out, body.clone(), json, batch.rows(), most).await {
                Said::Outputs(outputs) => return Ok(outputs),
                Said::Error(error) => return Err(error),
                Said::Another(why) => reasons.push(format!("{}: {why}", self.settings.servers[place])),
            }
            tried.push(place);
        }
    }

    async fn ask(&self, out: &mut Out<'_>, body: Bytes, json: Option<usize>, rows: usize, most: Duration) -> Said {
        let Ok(answer) = timeout(most, self.client.post(self.target(out.place), body, json)).await else {
            out.why = format!("a batch was not answered within {:.1} s", most.as_secs_f64());
            return Said::Error(RunnerError::Failed(out.why.clone()));
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                out.why = why.to_string();
                return match why {
                    Silence::Unconnected(_) => Said::Another(out.why.clone()),
                    Silence::Broken(_) => Said::Error(RunnerError::Failed(out.why.clone())),
                };
            }
        };
        (out.end, out.why) = (End::Failed, format!("it answers {}", answer.status));
        let words = || words(&answer.body);
        match answer.status {
            status if status.is_success() => match self.decode(&answer, rows) {
                Ok(outputs) => {
                    out.end = End::Fine;
                    Said::Outputs(outputs)
                }
                Err(error) => {
                    out.why = format!("{}, and {error}", out.why);
                    Said::Error(error)
                }
            },
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Said::Another(words()),
            // Whoever set this server up is to blame, or what lies between, and no row.
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::LOCKED
            | StatusCode::UPGRADE_REQUIRED => Said::Error(RunnerError::Failed(format!("{}: {}", out.why, words()))),
            status if status.is_client_error() => {
                out.end = End::Fine;
                Said::Error(RunnerError::Input(words()))
            }
            // The server is well; something in the batch is more than its model can take, and nobody can say what.
            StatusCode::INTERNAL_SERVER_ERROR => {
                out.end = End::Fine;
                Said::Error(RunnerError::Row(format!("{}: {}", out.why, words())))
            }
            _ => Said::Error(RunnerError::Failed(format!("{}: {}", out.why, words()))),
        }
    }
}

/// Asks a server that is left out how it does, for the first time after `pause`, until it is well.
async fn look_after(inner: Weak<Inner>, place: usize, mut pause: Duration) {
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
        let Some(inner) = inner.upgrade() else { return };
        if inner.look(place).await.is_ok() {
            inner.rota().is_back(place);
            tracing::info!(upstream = %inner.settings.servers[place], "it answers again");
            return;
        }
    }
}

/// What a server says of an error: `{"error": "…"}`, or its text.
fn words(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Told {
        error: String,
    }
    let text = serde_json::from_slice::<Told>(body).map(|told| told.error);
    let text = text.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    text.chars().filter(|c| !c.is_control()).take(WORDS).collect()
}

impl Remote for Upstream {
    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    async fn run(&self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.0.send(&batch, self.0.most).await
    }

    fn takes_whole(&self) -> bool {
        self.0.takes_whole
    }

    /// A server may load what it needs at its first batch: nobody waits for that but whoever loads the model.
    async fn rehearse(&self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.0.send(&batch, self.0.most.max(self.0.settings.start_timeout)).await
    }

    fn trouble(&self) -> Option<String> {
        let none = self.0.rota().well() == 0;
        none.then(|| "none of its upstream servers answers".to_owned())
    }
}
