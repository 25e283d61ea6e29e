//! TLS, Unix sockets, and several listeners of one server.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::server::{Ended, Options, Server, Tls};

use crate::folder::Folder;

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// They were taken, and the server panicked where it used them: when it was told to go, for one.
#[tokio::test]
async fn options_beyond_their_bounds_are_refused_by_name() {
    let all = Options::default;
    for (field, options) in [
        ("head_timeout", Options { head_timeout: Duration::MAX, ..all() }),
        ("body_timeout", Options { body_timeout: Duration::MAX, ..all() }),
        ("idle_timeout", Options { idle_timeout: Duration::MAX, ..all() }),
        ("write_timeout", Options { write_timeout: Duration::MAX, ..all() }),
        ("drain_delay", Options { drain_delay: Duration::MAX, ..all() }),
        ("drain_timeout", Options { drain_timeout: Duration::MAX, ..all() }),
        ("max_connections", Options { max_connections: NonZeroUsize::MAX, ..all() }),
    ] {
        let refused = Server::bind("127.0.0.1:0", options).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        assert!(refused.to_string().starts_with(&format!("{field} may be ")), "{refused}");
    }
    let longest = Options { drain_timeout: *Options::DRAIN_TIME.end(), ..all() };
    assert!(Server::bind("127.0.0.1:0", longest).await.is_ok());
}

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#;

/// A server of one stand-in, `m`.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Ended>,
}

async fn start(options: Options, others: &[String]) -> Running {
    let caps = Caps::new(Duration::from_secs(10), 8);
    let model = ModelSpec::new("m", Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO }, caps);
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![model])).await.unwrap().unwrap();
    let mut server = Server::bind("127.0.0.1:0", options).await.unwrap();
    for other in others {
        server = server.and(other).await.unwrap();
    }
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));
    Running { address, stop, serving }
}

/// Asks twice over one connection, and checks the answers.
async fn infer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    for _ in 0..2 {
        stream.write_all(post("").as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"data\":[3.0]"), "{answer}");
    }
    Ok(())
}

/// A certificate of its own signing, and its key, both also as files.
struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    fn made() -> (Identity, String, String) {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let texts = (cert.pem(), signing_key.serialize_pem());
        (Identity { certificate: cert.der().clone(), key: signing_key.serialize_der() }, texts.0, texts.1)
    }

    fn written(folder: &Path) -> Identity {
        let (identity, certificate, key) = Identity::made();
        std::fs::write(folder.join("cert.pem"), certificate).unwrap();
        std::fs::write(folder.join("key.pem"), key).unwrap();
        identity
    }
}

fn files(folder: &Path, client_ca: bool) -> Options {
    let client_ca = client_ca.then(|| folder.join("clients.pem"));
    let tls = Tls { certificate: folder.join("cert.pem"), key: folder.join("key.pem"), client_ca };
    Options { tls: Some(tls), ..Options::default() }
}

/// A good request with this further line in its head.
fn post(line: &str) -> String {
    let length = BODY.len();
    format!("POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n{line}Content-Length: {length}\r\n\r\n{BODY}")
}

/// Asks over TLS as whoever trusts `server`, and as `me` if that is said.
async fn infer_over_tls(address: SocketAddr, server: &Identity, me: Option<&Identity>) -> std::io::Result<()> {
    infer(secured(address, server, me, "http/1.1").await?).await
}

/// A connection over TLS that is to speak `protocol`.
async fn secured(
    address: SocketAddr,
    server: &Identity,
    me: Option<&Identity>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match me {
        None => config.with_no_client_auth(),
        Some(me) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(me.key.clone()));
            config.with_client_auth_cert(vec![me.certificate.clone()], key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.into()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn http_2_is_spoken_over_tls_with_whoever_names_it() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    let stream = secured(server.address, &own, None, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://localhost/v2/models/m/infer").body(Full::new(Bytes::from(BODY))).unwrap();
    let answer = tokio::time::timeout(HANGS, sender.send_request(request)).await.unwrap().unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("\"data\":[3.0]"));
}

/// Waits until metrics say that the files of the certificate are out of use, or in use again.
async fn until_stale(address: SocketAddr, server: &Identity, is_stale: bool) {
    until_metrics(address, server, &format!("uncork_stale_files{{file=\"certificate\"}} {}\n", u8::from(is_stale)))
        .await;
}

/// Waits until metrics have that line.
async fn until_metrics(address: SocketAddr, server: &Identity, line: &str) {
    let said = async {
        loop {
            let mut stream = secured(address, server, None, "http/1.1").await.unwrap();
            let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut metrics = String::new();
            stream.read_to_string(&mut metrics).await.unwrap();
            if metrics.contains(line) {
                return;
            }
        }
    };
    tokio::time::timeout(HANGS, said).await.expect("metrics say so");
}

#[tokio::test]
async fn connections_are_secured_and_the_next_one_sees_a_changed_certificate() {
    let folder = Folder::new();
    let first = Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    infer_over_tls(server.address, &first, None).await.unwrap();
    // A certificate without its key changes nothing, and metrics say so.
    std::fs::write(folder.path().join("key.pem"), "no key").unwrap();
    until_stale(server.address, &first, true).await;
    infer_over_tls(server.address, &first, None).await.unwrap();
    let second = Identity::written(folder.path());
    let changed = async { while infer_over_tls(server.address, &second, None).await.is_err() {} };
    tokio::time::timeout(HANGS, changed).await.expect("the new certificate is used");
    until_stale(server.address, &second, false).await;
    assert!(infer_over_tls(server.address, &first, None).await.is_err(), "the old one is not");
}

#[tokio::test]
async fn a_certificate_that_changed_before_the_server_first_looked_is_used() {
    let folder = Folder::new();
    Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    // It is bound, and has had no turn on this thread since.
    let second = Identity::written(folder.path());
    let changed = async { while infer_over_tls(server.address, &second, None).await.is_err() {} };
    tokio::time::timeout(HANGS, changed).await.expect("the new certificate is used");
}

#[tokio::test]
async fn a_chain_with_a_certificate_that_cannot_be_read_is_refused_and_the_old_one_stays() {
    let folder = Folder::new();
    let first = Identity::written(folder.path());
    let options = files(folder.path(), false);
    let server = start(options.clone(), &[]).await;
    let (second, certificate, key) = Identity::made();
    let write = |behind: &str| {
        std::fs::write(folder.path().join("key.pem"), &key).unwrap();
        std::fs::write(folder.path().join("cert.pem"), format!("{certificate}{behind}")).unwrap();
    };
    write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    until_stale(server.address, &first, true).await;
    infer_over_tls(server.address, &first, None).await.unwrap();
    let error = Server::bind("127.0.0.1:0", options).await.unwrap_err().to_string();
    assert!(error.contains("cert.pem: certificate 2 in it cannot be read"), "{error}");
    // What leads to its root is read as before.
    write(&Identity::made().1);
    let changed = async { while infer_over_tls(server.address, &second, None).await.is_err() {} };
    tokio::time::timeout(HANGS, changed).await.expect("the new certificate is used");
    until_stale(server.address, &second, false).await;
}

#[tokio::test]
async fn nobody_waits_for_the_writer_of_a_pipe_in_the_place_of_a_key_and_the_next_good_one_is_used() {
    let folder = Folder::new();
    let first = Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    let (pipe, key) = (folder.path().join("pipe"), folder.path().join("key.pem"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    // Whoever reads there waits for as long as this is open.
    let _writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    std::fs::rename(&pipe, &key).unwrap();
    until_stale(server.address, &first, true).await;
    std::fs::remove_file(&key).unwrap();
    let second = Identity::written(folder.path());
    let changed = async { while infer_over_tls(server.address, &second, None).await.is_err() {} };
    tokio::time::timeout(HANGS, changed).await.expect("the new certificate is used");
    until_stale(server.address, &second, false).await;
}

#[tokio::test]
async fn metrics_say_when_the_certificate_expires_and_follow_it() {
    let folder = Folder::new();
    let write = |year: i32| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
        Identity { certificate: certificate.der().clone(), key: key.serialize_der() }
    };
    let first = write(2060);
    let server = start(files(folder.path(), false), &[]).await;
    until_metrics(server.address, &first, "\nuncork_tls_certificate_expires_seconds 2840140800\n").await;
    let second = write(2070);
    let changed = async { while infer_over_tls(server.address, &second, None).await.is_err() {} };
    tokio::time::timeout(HANGS, changed).await.expect("the new certificate is used");
    until_metrics(server.address, &second, "\nuncork_tls_certificate_expires_seconds 3155760000\n").await;
}

#[tokio::test]
async fn a_connection_over_tls_is_closed_so_that_its_client_knows_that_nothing_is_cut_off() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    // Too long in silence behind a request that no hyper saw.
    let options = Options { idle_timeout: Duration::from_millis(200), ..files(folder.path(), false) };
    let server = start(options, &[]).await;
    let mut stream = secured(server.address, &own, None, "http/1.1").await.unwrap();
    stream.write_all(post("").as_bytes()).await.unwrap();
    // rustls tells an end without a word from one that was said.
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("close_notify");
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_client_that_closes_its_side_of_tls_with_its_request_is_answered() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    for line in ["", "Accept-Encoding: gzip\r\n"] {
        let mut stream = secured(server.address, &own, None, "http/1.1").await.unwrap();
        stream.write_all(post(line).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(HANGS, stream.read_to_end(&mut answer)).await.unwrap().expect("close_notify");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{line:?} {}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn a_connection_of_http_2_with_a_body_that_does_not_end_is_closed_so_that_its_client_knows_it() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    let options = Options { idle_timeout: Duration::from_millis(50), ..files(folder.path(), false) };
    let server = start(options, &[]).await;
    let mut stream = secured(server.address, &own, None, "h2").await.unwrap();
    // Settings without any, and POST / of the host 'a', without its body: it is refused, and the body is waited for.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let request = [0, 0, 6, 1, 4, 0, 0, 0, 1, 0x83, 0x87, 0x84, 0x41, 1, b'a'];
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &request].concat()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(HANGS, stream.read_to_end(&mut answer)).await.unwrap().expect("close_notify");
    assert!(answer.windows(8).any(|bytes| bytes == b"{\"error\""), "{answer:?}");
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_so() {
    let folder = Folder::new();
    Identity::written(folder.path());
    let server = start(files(folder.path(), false), &[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(HANGS, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("ask with https://"), "{answer}");
}

#[tokio::test]
async fn connections_whose_handshakes_go_on_for_a_second_make_room() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    let (most, patience) = (2.try_into().unwrap(), 2 * HANGS);
    let options = Options { max_connections: most, head_timeout: patience, ..files(folder.path(), false) };
    let server = start(options, &[]).await;
    // One says nothing, and one begins a handshake.
    let mut held = Vec::new();
    for begun in [&[][..], &[22, 3, 1]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        held.push(stream);
    }
    let mut stay = Vec::new();
    let gone = async {
        for stream in &mut held {
            stay.push(loop {
                if let Ok(newcomer) = secured(server.address, &own, None, "http/1.1").await {
                    break newcomer;
                }
                tokio::task::yield_now().await;
            });
            // What it has sent was read, or its end would be a reset.
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        }
    };
    tokio::time::timeout(HANGS, gone).await.expect("they make room");
}

#[tokio::test]
async fn clients_need_a_certificate_where_their_roots_are_named() {
    let folder = Folder::new();
    let own = Identity::written(folder.path());
    let (client, client_text, _) = Identity::made();
    let (stranger, ..) = Identity::made();
    std::fs::write(folder.path().join("clients.pem"), client_text).unwrap();
    let server = start(files(folder.path(), true), &[]).await;
    infer_over_tls(server.address, &own, Some(&client)).await.unwrap();
    assert!(infer_over_tls(server.address, &own, None).await.is_err());
    assert!(infer_over_tls(server.address, &own, Some(&stranger)).await.is_err());
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = Folder::new();
    let refused = async || Server::bind("127.0.0.1:0", files(folder.path(), false)).await.unwrap_err().to_string();
    assert!(refused().await.contains("cert.pem"));
    Identity::written(folder.path());
    std::fs::write(folder.path().join("key.pem"), "no key").unwrap();
    assert!(refused().await.contains("key.pem"));
}

#[tokio::test]
async fn a_server_listens_on_tcp_and_unix_sockets_at_once() {
    let folder = Folder::new();
    let paths = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
    // What a killed server left behind.
    drop(std::os::unix::net::UnixListener::bind(&paths[0]).unwrap());
    let addresses = paths.clone().map(|path| format!("unix:{}", path.display()));
    let server = start(Options::default(), &addresses).await;
    infer(TcpStream::connect(server.address).await.unwrap()).await.unwrap();
    for path in &paths {
        infer(UnixStream::connect(path).await.unwrap()).await.unwrap();
    }
    let taken = Server::bind(&addresses[0], Options::default()).await.unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    server.stop.send(()).unwrap();
    assert_eq!(tokio::time::timeout(HANGS, server.serving).await.unwrap().unwrap(), Ended::Drained);
    assert!(paths.iter().all(|path| !path.exists()), "the sockets go with the server");
}
