//! What secures connections, and how a server's certificate is judged.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Whose word is taken for a server's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// The roots that this machine knows.
    #[default]
    System,
    /// The roots in this file.
    File(std::path::PathBuf),
    /// Anybody's.
    Anybody,
}

/// How connections to one server are secured.
#[derive(Clone)]
pub struct Tls {
    /// For HTTP/1.1 and for HTTP/2.
    configs: [Arc<ClientConfig>; 2],
    name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// For the server of that name.
    ///
    /// # Errors
    /// What is wrong with the name or the roots.
    pub fn new(name: &str, trust: &Trust) -> Result<Tls, String> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| format!("'{name}' is no name of a server"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be had: {error}"))?;
        let config = match trust {
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth()
            }
            Trust::File(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
            Trust::System => {
                let found = rustls_native_certs::load_native_certs();
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err("this machine knows no roots of certificates; name a file with --ca".into());
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Tls { configs: [speaking(b"http/1.1"), speaking(b"h2")], name: server })
    }

    /// A connection that is to be secured.
    pub(super) fn begin(&self, http2: bool) -> io::Result<ClientConnection> {
        let config = Arc::clone(&self.configs[usize::from(http2)]);
        ClientConnection::new(config, self.name.clone()).map_err(io::Error::other)
    }
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it holds no certificate in PEM")) } else { Ok(roots) }
}

/// Takes every certificate: for a load on a server of one's own.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
