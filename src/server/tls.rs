//! TLS: certificates that are read again when they change, and the handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use super::socket::{Socket, Wire};
use super::validity::Validity;
use crate::files::{self, Looks};
use crate::metrics::HttpMetrics;
use crate::quote::shown;

/// The files that TLS needs, all in PEM. They are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, and behind it those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Roots of the clients' certificates, where clients need one.
    pub client_ca: Option<PathBuf>,
}

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The first byte of every handshake: a record of that type (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The certificates as they are now. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Certificates(Arc<Held>);

#[derive(Debug)]
struct Held {
    files: Tls,
    /// What told their state just before they were first read.
    first: u64,
    now: RwLock<Arc<Read>>,
}

/// What the files hold.
#[derive(Debug)]
struct Read {
    config: Arc<ServerConfig>,
    validity: Validity,
}

/// What a new connection turns out to be.
pub(super) enum Greeted {
    /// One that speaks TLS.
    Secured(Socket),
    /// One that does not.
    Plain(Wire),
}

impl Certificates {
    /// Reads the files. The error names the one that cannot be used.
    pub(super) fn read(files: &Tls) -> io::Result<Certificates> {
        let first = files::state(files.files());
        let now = RwLock::new(Arc::new(read(files)?));
        Ok(Certificates(Arc::new(Held { files: files.clone(), first, now })))
    }

    fn now(&self) -> Arc<Read> {
        Arc::clone(&self.0.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What an operator has to hear of the certificates as they are at that time: that one has expired, or will soon.
    pub(super) fn warning(&self, now: SystemTime) -> Option<String> {
        self.now().validity.warning(shown(&self.0.files.certificate), now)
    }

    /// Tells metrics how long the certificates hold.
    fn measure(&self, metrics: &HttpMetrics) {
        metrics.certificate_expires.set(self.now().validity.until_seconds());
    }

    /// Says in the log what an operator has to hear, if it is time to. When it was said last goes in and comes out.
    fn warn(&self, told: Option<SystemTime>) -> Option<SystemTime> {
        let now = SystemTime::now();
        if !self.now().validity.is_due(told, now) {
            return told;
        }
        let warning = self.warning(now)?;
        tracing::warn!("{warning}");
        Some(now)
    }

    /// Follows the files for ever, and tells how long the certificates hold. What cannot be used leaves them as they are; it is
    /// logged, and told as stale.
    pub(super) async fn follow(&self, metrics: &HttpMetrics) {
        self.measure(metrics);
        let mut told = self.warn(None);
        let mut looks = Looks::since(self.0.first);
        loop {
            tokio::time::sleep(LOOK).await;
            told = self.warn(told);
            // The files may be on a disk that does not answer, and the thread that waits here is that of the batches.
            let (files, mut now) = (self.0.files.clone(), looks);
            let look = tokio::task::spawn_blocking(move || {
                let are_news = now.are_news(files::state(files.files()));
                (now, are_news.then(|| read(&files)))
            });
            let Ok((now, read)) = look.await else { continue };
            looks = now;
            let Some(read) = read else { continue };
            match read {
                Ok(read) => {
                    *self.0.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                    metrics.stale_certificate.set(0.0);
                    tracing::info!("certificate read again from {}", shown(&self.0.files.certificate));
                    self.measure(metrics);
                    told = self.warn(None);
                }
                Err(error) => {
                    metrics.stale_certificate.set(1.0);
                    tracing::error!(%error, "the certificate stays as it was");
                }
            }
        }
    }

    /// Shakes hands, if the client begins to.
    pub(super) async fn greet(&self, wire: Wire) -> io::Result<Greeted> {
        if wire.first_byte().await?.is_some_and(|byte| byte != HANDSHAKE) {
            return Ok(Greeted::Plain(wire));
        }
        let stream = TlsAcceptor::from(Arc::clone(&self.now().config)).accept(wire).await?;
        Ok(Greeted::Secured(Socket::Tls(Box::new(stream))))
    }
}

impl Tls {
    fn files(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }
}

fn read(of: &Tls) -> io::Result<Read> {
    let wrong = |file: &Path, why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", shown(file)))
    };
    let text = |file: &Path| files::bytes(file, files::MOST).map_err(|error| wrong(file, &error));
    let certificates = |file: &Path| {
        let found = CertificateDer::pem_slice_iter(&text(file)?).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| wrong(file, &error))?;
        let none = "there is no certificate in it: it must be PEM, with a line -----BEGIN CERTIFICATE-----";
        if found.is_empty() { Err(wrong(file, &none)) } else { Ok(found) }
    };
    let chain = certificates(&of.certificate)?;
    let validity = Validity::of(&chain);
    // TLS looks at the first alone, and clients give up at one that they cannot read. Two readers know more oddities than one.
    let is_read = |place: &usize| ParsedCertificate::try_from(&chain[place - 1]).is_ok();
    if let Some(place) = validity.unread().iter().find(|place| !is_read(place)) {
        let why = format!("certificate {place} in it cannot be read, and clients would refuse the chain");
        return Err(wrong(&of.certificate, &why));
    }
    let key = text(&of.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| match error {
        // It takes a password.
        pem::Error::NoItemsFound if memchr::memmem::find(&key, b"ENCRYPTED").is_some() => {
            wrong(&of.key, &"the key is encrypted; a server needs it plain: openssl pkey -in KEY -out PLAIN")
        }
        pem::Error::NoItemsFound => wrong(&of.key, &"there is no private key in it: it must be PEM"),
        other => wrong(&of.key, &other),
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match &of.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|error| wrong(file, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong(file, &error))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&of.key, &format_args!("it is not the key of {}", shown(&of.certificate)))
        }
        other => wrong(&of.certificate, &other),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Read { config: Arc::new(config), validity })
}
