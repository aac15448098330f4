//! Encryption, and certificates of clients.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::tls::{ServerTls, TlsFiles};
use arrow_flight::sql::client::FlightSqlServiceClient;
use catalog::Role;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serving::http::Protection;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use crate::rights::{protection, token};
use crate::server::{Client, Server, one};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certificate(by: &Authority) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (CertificateParams::new(vec!["node.test".to_owned()]).unwrap().signed_by(&key, by).unwrap(), key)
}

fn write(folder: &Path, by: &Authority) {
    let (certificate, key) = certificate(by);
    std::fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn encrypted(folder: &Path, client_ca: Option<&str>) -> ServerTls {
    let path = |name: &str| folder.join(name);
    ServerTls::load(TlsFiles { cert: path("cert.pem"), key: path("key.pem"), client_ca: client_ca.map(path) }, &["http/1.1"]).unwrap()
}

/// Connects a client with TLS.
#[derive(Clone)]
struct Connecting {
    address: SocketAddr,
    connector: TlsConnector,
}

impl tonic::codegen::Service<Uri> for Connecting {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Connecting { address, connector } = self.clone();
        Box::pin(async move {
            let socket = TcpStream::connect(address).await?;
            Ok(TokioIo::new(connector.connect(ServerName::try_from("node.test").unwrap(), socket).await?))
        })
    }
}

/// A client that trusts an authority, with a certificate of another one.
async fn connect(server: &Server, trusted: &Authority, own: Option<&Authority>) -> Result<Client, tonic::transport::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (certificate, key) = certificate(own);
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![CertificateDer::from(certificate.der().to_vec())], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connecting = Connecting { address: server.address, connector: TlsConnector::from(Arc::new(config)) };
    let channel = Endpoint::from_static("http://node.test").connect_with_connector(connecting).await?;
    Ok(FlightSqlServiceClient::new(channel))
}

#[tokio::test(flavor = "multi_thread")]
async fn where_tls_is_set_nothing_is_said_in_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (authority(), authority());
    write(folder.path(), &first);
    let (secret, record) = token("all", Role::Reader, &[]);
    let tls = encrypted(folder.path(), None);
    let server = Server::protected(&Protection { tls: Some(tls.clone()), ..protection(vec![record]) }).await;

    let plain = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await;
    if let Ok(channel) = plain {
        let mut client = FlightSqlServiceClient::new(channel);
        client.set_token(secret.clone());
        assert!(client.execute("SELECT 1".to_owned(), None).await.is_err());
    }
    let mut client = connect(&server, &first, None).await.unwrap();
    client.set_token(secret.clone());
    assert_eq!(one(&mut client, "SELECT count(*) FROM per_device").await, "0");
    assert!(connect(&server, &second, None).await.is_err());

    // Files that change are used by the next connection.
    write(folder.path(), &second);
    assert!(tls.reload().unwrap());
    let mut other = connect(&server, &second, None).await.unwrap();
    other.set_token(secret);
    assert_eq!(one(&mut other, "SELECT count(*) FROM per_device").await, "0");
    assert_eq!(one(&mut client, "SELECT count(*) FROM per_device").await, "0");
    drop((client, other));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_where_an_authority_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (authority(), authority());
    write(folder.path(), &ours);
    std::fs::write(folder.path().join("ca.pem"), ours.pem()).unwrap();
    let open = Protection::none(Arc::new(|| 0)).unwrap();
    let server = Server::protected(&Protection { tls: Some(encrypted(folder.path(), Some("ca.pem"))), ..open }).await;
    let mut client = connect(&server, &ours, Some(&ours)).await.unwrap();
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    for wrong in [None, Some(&other)] {
        // With TLS 1.3 the refusal may come with the first call.
        if let Ok(mut client) = connect(&server, &ours, wrong).await {
            assert!(client.execute("SELECT 1".to_owned(), None).await.is_err());
        }
    }
    drop(client);
    server.stop().await;
}
