//! Encryption, and certificates of clients.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::tls::{ServerTls, TlsFiles};
use arrow_flight::sql::client::FlightSqlServiceClient;
use basestream_tests::certificates::{Authority, server_name};
use catalog::Role;
use hyper_util::rt::TokioIo;
use serving::http::Protection;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use crate::rights::{protection, token};
use crate::server::{Client, Server, one};

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
            Ok(TokioIo::new(connector.connect(server_name().map_err(io::Error::other)?, socket).await?))
        })
    }
}

/// A client that trusts an authority, with a certificate of another one.
async fn connect(server: &Server, trusted: &Authority, own: Option<&Authority>) -> Result<Client, tonic::transport::Error> {
    let connecting = Connecting { address: server.address, connector: trusted.connector(own, "h2").unwrap() };
    let channel = Endpoint::from_static("http://node.test").connect_with_connector(connecting).await?;
    Ok(FlightSqlServiceClient::new(channel))
}

#[tokio::test(flavor = "multi_thread")]
async fn where_tls_is_set_nothing_is_said_in_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new().unwrap(), Authority::new().unwrap());
    first.write_server(folder.path()).unwrap();
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
    second.write_server(folder.path()).unwrap();
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
    let (ours, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    ours.write_server(folder.path()).unwrap();
    ours.write_own(folder.path()).unwrap();
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
