//! Who may do what: each route asks for a right, or for none, and the door knows who has it.
//!
//! On a loopback address everybody on this machine may do everything. A page of another site, open in a browser on this
//! machine, may not: it could post to this address, and by pointing a name of its own here (DNS rebinding) read the
//! answers. Such a request names its site in `Origin`, `Sec-Fetch-Site` or `Host`. On every other address a caller needs a
//! token, or the operator has said that the network keeps strangers out. A token that a browser knows as a password goes along with
//! whatever any page asks for, so the site counts there as well.

mod host;
mod rate;
mod tokens;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::{Method, StatusCode, Uri};
use metrics::Gauge;

use super::listener::Address;
use super::quick::Through;
use super::status::Refusal;
use crate::files::{self, Looks};
use crate::quote::{Quoted, shown};
use crate::registry::Caller;
pub(crate) use host::is_host;
use rate::Rates;
use tokens::{Token, Tokens};

/// Who may ask this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Whoever is on this machine: only loopback addresses can be bound. A request whose `Host` is a name with a dot is
    /// refused unless the name is one of these, as it is behind a proxy on this machine that passes names on.
    Local {
        /// Names that this server is called by.
        hosts: Vec<String>,
    },
    /// Holders of the tokens in this file, which is read again when it changes.
    Tokens {
        /// A line for each: a name, the token, and what it may do (`inference`, `scrape`, `admin`; `inference` where nothing is said).
        file: PathBuf,
        /// Names of this server beside the `Host` of a request: pages of these may ask with a token that a browser knows as a password, as
        /// behind a proxy that does not pass `Host` on.
        hosts: Vec<String>,
    },
    /// Everybody who reaches the address.
    Everybody,
}

impl Default for Access {
    fn default() -> Access {
        Access::Local { hosts: Vec::new() }
    }
}

/// What a route asks for. Probes ask for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// To see metrics, the status and the page.
    Scrape,
    /// To ask models, and what they take.
    Inference,
    /// To change what is served.
    Admin,
}

impl Right {
    const ALL: [Right; 3] = [Right::Scrape, Right::Inference, Right::Admin];

    /// As it stands in the file.
    fn name(self) -> &'static str {
        match self {
            Right::Scrape => "scrape",
            Right::Inference => "inference",
            Right::Admin => "admin",
        }
    }

    fn from_name(name: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == name)
    }
}

/// Who has come, and by which token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bearer {
    pub(super) caller: Caller,
    /// Tells tokens apart, also those that one holder has had; 0 where nobody needs one.
    seal: u64,
}

/// What a head says that the door looks at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) authorization: Option<&'a [u8]>,
    /// Where there may be what browsers say.
    pub(super) all: Option<&'a HeaderMap>,
}

impl<'a> From<&'a HeaderMap> for Said<'a> {
    fn from(headers: &'a HeaderMap) -> Said<'a> {
        let value = |name| headers.get(name).map(HeaderValue::as_bytes);
        Said { host: value(HOST), authorization: value(AUTHORIZATION), all: Some(headers) }
    }
}

impl<'a> Said<'a> {
    /// Each value of a header that browsers send. What is in the way may have added one, or joined several with commas.
    fn each(self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let values = self.all.into_iter().flat_map(move |headers| headers.get_all(name));
        values.flat_map(|value| value.as_bytes().split(|&b| b == b',')).map(<[u8]>::trim_ascii)
    }
}

/// How often the file of tokens is looked at.
const LOOK: Duration = Duration::from_secs(1);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Decides who comes in. Clones share the tokens.
#[derive(Debug, Clone)]
pub(super) enum Door {
    Local(Arc<[String]>),
    Tokens(Arc<Held>),
    Everybody,
}

/// The tokens as they are now.
#[derive(Debug)]
pub(super) struct Held {
    file: PathBuf,
    /// What told its state just before it was first read.
    first: u64,
    hosts: Arc<[String]>,
    tokens: RwLock<Tokens>,
    rates: Mutex<Rates>,
    epoch: Instant,
}

impl Door {
    /// The door that this needs. The error says what is wrong with the file of tokens.
    pub(super) fn of(access: &Access) -> io::Result<Door> {
        let lower = |hosts: &[String]| hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(match access {
            Access::Local { hosts } => Door::Local(lower(hosts)),
            Access::Tokens { file, hosts } => {
                let first = files::state([file.as_path()]);
                let tokens = RwLock::new(Tokens::read(file)?);
                let (file, hosts, rates, epoch) = (file.clone(), lower(hosts), Mutex::default(), Instant::now());
                Door::Tokens(Arc::new(Held { file, first, hosts, tokens, rates, epoch }))
            }
            Access::Everybody => Door::Everybody,
        })
    }

    /// Whether it may stand at this address. The error says what an address needs that others can reach.
    pub(super) fn may_open(&self, address: &Address) -> io::Result<()> {
        match (self, address) {
            (Door::Local(_), Address::Tcp(address)) if !address.ip().to_canonical().is_loopback() => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "other machines can reach this address, so callers need tokens: name a tokens_file; or, where the \
                     network keeps strangers out, say --insecure",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Follows the file of tokens, if there is one.
    pub(super) async fn follow(&self, is_stale: &Gauge) {
        let Door::Tokens(held) = self else { return std::future::pending().await };
        let mut looks = Looks::since(held.first);
        loop {
            tokio::time::sleep(LOOK).await;
            // A file may be on a disk that does not answer, and the thread that waits here is that of the batches.
            let (held, is_stale) = (Arc::clone(held), is_stale.clone());
            let look = tokio::task::spawn_blocking(move || {
                held.renew(&mut looks, &is_stale);
                looks
            });
            match look.await {
                Ok(now) => looks = now,
                Err(_) => tracing::error!("looking at the file of tokens panicked; this is a bug in uncork"),
            }
        }
    }

    /// Whether a request with this head may do what asks for `right`, and whose it is.
    pub(super) fn check<'a>(
        &self,
        right: Right,
        method: &Method,
        said: impl Into<Said<'a>>,
    ) -> Result<Bearer, Refusal> {
        let said = said.into();
        match self {
            Door::Everybody => {
                check_site(method, said, |_| false)?;
                Ok(Bearer::default())
            }
            Door::Local(hosts) => {
                let is_ours = |host: &str| is_of_this_machine(host) || hosts.iter().any(|own| own == host);
                let named = said.host.map(String::from_utf8_lossy);
                if let Some(named) = named
                    && !host::host(&named).is_some_and(|host| is_ours(&host))
                {
                    let quoted = Quoted(&named);
                    return Err(Refusal::new(
                        StatusCode::FORBIDDEN,
                        format!("this server is not called {quoted}; if it should be, name it in hosts of [server]"),
                    ));
                }
                check_site(method, said, |host| is_loopback(host) || hosts.iter().any(|own| own == host))?;
                Ok(Bearer::default())
            }
            Door::Tokens(held) => {
                let needed = || Refusal::no_token("a token is needed: Authorization: Bearer TOKEN");
                let secret = secret(said).ok_or_else(needed)?;
                let tokens = held.tokens.read().unwrap_or_else(PoisonError::into_inner);
                let token = tokens.find(&secret.token).ok_or_else(unknown)?;
                if secret.is_password {
                    check_site(method, said, |host| held.hosts.iter().any(|own| own == host))?;
                }
                if !token.has(right) {
                    let (holder, right) = (&token.holder, right.name());
                    let message = format!("the token of {} has no right to this: it needs '{right}'", Quoted(holder));
                    return Err(Refusal::new(StatusCode::FORBIDDEN, message));
                }
                Ok(token.bearer())
            }
        }
    }

    /// Whether `bearer` may do this by now, as for each question of an open stream.
    pub(super) fn recheck(&self, bearer: Bearer, right: Right) -> Result<(), Refusal> {
        let Door::Tokens(held) = self else { return Ok(()) };
        held.tokens.read().unwrap_or_else(PoisonError::into_inner).still(bearer, right).map(drop)
    }

    /// Counts a request for inference of `bearer` against his rate, if he has one, or refuses it. Says who he is by now: what was found out at
    /// the begin of a stream may be of a line that has changed or is gone.
    pub(super) fn pace(&self, bearer: Bearer) -> Result<Caller, Refusal> {
        let Door::Tokens(held) = self else { return Ok(bearer.caller) };
        let tokens = held.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.still(bearer, Right::Inference)?;
        let Some(rate) = token.rate else { return Ok(token.caller()) };
        let mut rates = held.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.take(token.id, rate, held.epoch.elapsed()).map(|()| token.caller()).map_err(|wait| {
            let message = format!("the token of {} may send {rate} requests a second", Quoted(&token.holder));
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, message).retry_after(wait)
        })
    }
}

impl Held {
    /// Reads the file again if it has changed. One that cannot be used leaves the tokens as they are; it is logged, and `is_stale` is 1.
    fn renew(&self, looks: &mut Looks, is_stale: &Gauge) {
        if !looks.are_news(files::state([self.file.as_path()])) {
            return;
        }
        match Tokens::read(&self.file) {
            Ok(tokens) => {
                *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
                is_stale.set(0.0);
                tracing::info!("tokens read again from {}", shown(&self.file));
            }
            Err(error) => {
                is_stale.set(1.0);
                tracing::error!(%error, "the tokens stay as they were");
            }
        }
    }
}

impl Tokens {
    /// The token by which somebody came, if it is still one and he may do this by it.
    fn still(&self, bearer: Bearer, right: Right) -> Result<&Token, Refusal> {
        self.of(bearer).filter(|token| token.has(right)).ok_or_else(unknown)
    }
}

fn unknown() -> Refusal {
    Refusal::no_token("this token is not known")
}

/// Lets a request through to a route that asks for `right`, or refuses it before its body is read.
pub(super) async fn admit(State((door, right)): State<(Door, Right)>, mut request: Request, next: Next) -> Response {
    match door.check(right, request.method(), request.headers()) {
        Ok(bearer) => {
            request.extensions_mut().insert(bearer.caller);
            request.extensions_mut().insert(bearer);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Counts a request for inference that was admitted, or refuses it before its body is read. One that was judged from its head was counted then.
pub(super) async fn count(State(door): State<Door>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Through>().is_some() {
        return next.run(request).await;
    }
    let bearer = request.extensions().get().copied().unwrap_or_default();
    match door.pace(bearer) {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Whoever asks has some right, and may hear the names of models where others may not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known;

/// Lets everybody through, and says whether he is known.
pub(super) async fn recognise(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    if Right::ALL.into_iter().any(|right| door.check(right, request.method(), request.headers()).is_ok()) {
        request.extensions_mut().insert(Known);
    }
    next.run(request).await
}

/// Refuses what a browser says that a page of another site has asked for: of another host than the request's own, unless that `is_ours`. What no
/// browser sends has neither header. To follow a link from elsewhere is no harm: that page does not see the answer.
fn check_site(method: &Method, said: Said<'_>, is_ours: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let elsewhere = |site: &str| {
        Refusal::new(StatusCode::FORBIDDEN, format!("a page of another site has asked for this ({})", Quoted(site)))
    };
    for origin in said.each(&ORIGIN).map(String::from_utf8_lossy) {
        // `null`, as of a file or a sandbox, has no scheme.
        let uri = origin.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some());
        let host = uri.and_then(|uri| host::host(uri.authority()?.as_str()));
        if !host.is_some_and(|host| own_host(said).as_deref() == Some(&host) || is_ours(&host)) {
            return Err(elsewhere(&origin));
        }
    }
    let is_followed = (method == Method::GET || method == Method::HEAD)
        && said.each(&SEC_FETCH_MODE).next().is_some()
        && said.each(&SEC_FETCH_MODE).all(|mode| mode == b"navigate");
    if said.each(&SEC_FETCH_SITE).any(|site| site.eq_ignore_ascii_case(b"cross-site")) && !is_followed {
        return Err(elsewhere("cross-site"));
    }
    Ok(())
}

/// The host that a request names, if that is one.
fn own_host(said: Said<'_>) -> Option<String> {
    host::host(std::str::from_utf8(said.host?).ok()?)
}

/// The address that a host is, if it is one.
fn address(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// Whether no name of a stranger can be pointed here so that a browser asks for this host: an address, or a name without a dot, which no public
/// name server answers.
fn is_of_this_machine(host: &str) -> bool {
    address(host).is_some() || !host.contains('.') || host.ends_with(".localhost")
}

/// Whether a page of this host comes from this machine.
fn is_loopback(host: &str) -> bool {
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || address(host).is_some_and(|address| address.to_canonical().is_loopback())
}

/// What a request shows for itself.
#[derive(Debug, PartialEq)]
struct Secret {
    token: Vec<u8>,
    /// Whether it came as a password, which a browser sends for any page once it knows it.
    is_password: bool,
}

/// The token of a request: that of `Bearer`, or the password of `Basic`, which browsers ask for.
fn secret(said: Said<'_>) -> Option<Secret> {
    let (scheme, rest) = std::str::from_utf8(said.authorization?).ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Secret { token: rest.trim().as_bytes().to_vec(), is_password: false });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|&b| b == b':')?;
    Some(Secret { token: pair[colon + 1..].to_vec(), is_password: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::telemetry::Tracer;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn local() -> Door {
        Door::of(&Access::Local { hosts: vec!["ml.Example.com".into()] }).unwrap()
    }

    fn status(door: &Door, method: Method, lines: &[(&'static str, &str)]) -> u16 {
        door.check(Right::Inference, &method, &headers(lines)).map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }

    #[test]
    fn on_loopback_a_name_that_a_stranger_could_own_is_refused() {
        let own = [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8080",
            "a",
            "app.localhost",
            "ml.example.com",
            "10.0.0.7",
        ];
        for host in own {
            assert_eq!(status(&local(), Method::POST, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "ml.example.com.evil.example",
            "evil.example.:80",
            "a b",
            "@localhost",
            "localhost@evil.example",
            "evil.example%00.localhost",
        ] {
            assert_eq!(status(&local(), Method::POST, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&local(), Method::POST, &[]), 200, "HTTP/1.0");
    }

    #[test]
    fn a_page_of_another_site_is_refused_and_a_link_from_one_is_followed() {
        let ask = |method, lines: &[(&'static str, &str)]| {
            let lines: Vec<_> = [("host", "127.0.0.1:8080")].iter().chain(lines).copied().collect();
            status(&local(), method, &lines)
        };
        assert_eq!(ask(Method::POST, &[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(ask(Method::POST, &[("origin", "http://localhost:3000")]), 200);
        assert_eq!(ask(Method::POST, &[("origin", "https://evil.example")]), 403);
        assert_eq!(ask(Method::POST, &[("origin", "null")]), 403);
        assert_eq!(ask(Method::POST, &[("origin", "http://evil.example%00.localhost")]), 403);
        assert_eq!(ask(Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]), 403);
        assert_eq!(ask(Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), 200);
        assert_eq!(ask(Method::POST, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), 403);
        let ours = ("origin", "http://localhost");
        for twice in [
            [ours, ("origin", "http://evil.example")],
            [ours, ("origin", "http://localhost, http://evil.example")],
            [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            [ours, ("sec-fetch-site", "same-origin, cross-site")],
            [ours, ("sec-fetch-site", "Cross-Site")],
        ] {
            assert_eq!(ask(Method::POST, &twice), 403, "{twice:?}");
        }
        assert_eq!(ask(Method::POST, &[ours, ("origin", "http://127.0.0.1:3000")]), 200, "two of this machine");
        let modes = ["navigate", "no-cors"].map(|mode| ("sec-fetch-mode", mode));
        assert_eq!(ask(Method::GET, &[("sec-fetch-site", "cross-site"), modes[0], modes[1]]), 403);
        for elsewhere in ["http://203.0.113.5", "https://[2001:db8::1]:80", "http://intranet", "http://10.0.0.7"] {
            assert_eq!(ask(Method::POST, &[("origin", elsewhere)]), 403, "{elsewhere}");
        }
        for here in ["http://[::1]:3000", "http://app.localhost", "https://ml.example.com"] {
            assert_eq!(ask(Method::POST, &[("origin", here)]), 200, "{here}");
        }
        let own = [("host", "10.0.0.7:8080"), ("origin", "http://10.0.0.7:8080")];
        assert_eq!(status(&local(), Method::POST, &own), 200, "a proxy on this machine");
        let everybody = Door::Everybody;
        assert_eq!(status(&everybody, Method::POST, &[("host", "ml.example"), ("origin", "http://ml.example")]), 200);
        assert_eq!(status(&everybody, Method::POST, &[("host", "ml.example"), ("origin", "http://evil.example")]), 403);
    }

    #[test]
    fn an_address_that_others_reach_needs_tokens_or_a_word() {
        let local = Door::of(&Access::default()).unwrap();
        let tcp = |address: &str| Address::Tcp(address.parse().unwrap());
        for address in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let error = local.may_open(&tcp(address)).unwrap_err().to_string();
            assert!(error.contains("tokens_file") && error.contains("--insecure"), "{error}");
            assert!(Door::Everybody.may_open(&tcp(address)).is_ok());
        }
        for address in ["127.0.0.1:80", "127.8.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(local.may_open(&tcp(address)).is_ok(), "{address}");
        }
        assert!(local.may_open(&Address::Unix("/run/uncork.sock".into())).is_ok());
    }

    #[test]
    fn a_token_comes_as_a_bearer_or_as_a_password() {
        let of = |value: &str| secret(Said { authorization: Some(value.as_bytes()), ..Said::default() });
        let is = |token: &[u8], is_password| Some(Secret { token: token.to_vec(), is_password });
        assert_eq!(of("Bearer abc"), is(b"abc", false));
        assert_eq!(of("bearer  abc "), is(b"abc", false));
        assert_eq!(of("Basic bWU6YTpi"), is(b"a:b", true));
        for wrong in ["", "Bearer", "Basic !!", "Basic bWU=", "Digest abc"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_that_a_browser_knows_as_a_password_is_none_of_another_site_s() {
        let file = std::env::temp_dir().join(format!("uncork-passwords-{}", std::process::id()));
        std::fs::write(&file, "me 0123456789abcdef\n").unwrap();
        let hosts = vec!["Uncork.Example".into()];
        let door = Door::of(&Access::Tokens { file: file.clone(), hosts }).unwrap();
        std::fs::remove_file(&file).unwrap();
        let password = format!("Basic {}", BASE64_STANDARD.encode("me:0123456789abcdef"));
        let ask = |authorization: &str, line| {
            let lines = [("host", "ml.example"), ("authorization", authorization), line];
            status(&door, Method::POST, &lines)
        };
        let (elsewhere, bearer) = (("origin", "https://evil.example"), "Bearer 0123456789abcdef");
        assert_eq!(ask(&password, elsewhere), 403);
        assert_eq!(ask(&password, ("sec-fetch-site", "cross-site")), 403);
        assert_eq!(ask(&password, ("origin", "https://ml.example")), 200);
        assert_eq!(ask(&password, ("origin", "https://uncork.example")), 200, "a proxy that passes on no Host");
        assert_eq!(ask(bearer, elsewhere), 200, "no browser adds that by itself");
    }

    #[test]
    fn a_broken_file_of_tokens_leaves_the_old_ones_and_the_next_good_one_is_read() {
        let name = format!("uncork-tokens-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("ci 0123456789abcdef\n");
        let door = Door::of(&Access::Tokens { file: file.clone(), hosts: Vec::new() }).unwrap();
        let Door::Tokens(held) = &door else { panic!("a door with tokens") };
        let registry = Registry::open(Vec::new(), Tracer::off()).0;
        let is_stale = registry.metrics().http().stale_tokens;
        let mut looks = Looks::since(held.first);
        let mut after_two_looks = |old: u16, new: u16, stale: u8| {
            let (held, is_stale, mut own) = (Arc::clone(held), is_stale.clone(), looks);
            let (told, looked) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                (0..2).for_each(|_| held.renew(&mut own, &is_stale));
                told.send(own).unwrap();
            });
            looks = looked.recv_timeout(std::time::Duration::from_secs(20)).expect("nobody is waited for");
            let ask = |token: &str| status(&door, Method::GET, &[("authorization", &format!("Bearer {token}"))]);
            assert_eq!((ask("0123456789abcdef"), ask("fedcba9876543210")), (old, new));
            let metrics = registry.metrics().render();
            assert!(metrics.contains(&format!("uncork_stale_files{{file=\"tokens\"}} {stale}\n")), "{metrics}");
        };
        write("ci short\n");
        after_two_looks(200, 401, 1);
        write("ci fedcba9876543210 \n");
        after_two_looks(401, 200, 0);
        // Nobody waits for the writer of a pipe, and the next good one is read.
        std::fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("coreutils").success());
        after_two_looks(401, 200, 1);
        std::fs::remove_file(&file).unwrap();
        write("ci fedcba9876543210\n");
        after_two_looks(401, 200, 0);
        // Nor does a lost one lock anybody out.
        std::fs::remove_file(&file).unwrap();
        after_two_looks(401, 200, 1);
    }
}
