//! Encryption, and certificates of clients.

use std::error::Error;
use std::path::Path;

use access::tls::{ServerTls, TlsFiles};
use basestream_tests::certificates::{Authority, server_name};
use catalog::Role;
use serving::http::Protection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use crate::rights::{log_in, protection, token};
use crate::server::{Server, error_of, one};

/// Asks for encryption before anything else is said.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A server's certificate in a folder, and whose certificates its clients need.
fn encrypted(folder: &Path, by: &Authority, client_ca: Option<&Authority>) -> ServerTls {
    by.write_server(folder).unwrap();
    let client_ca = client_ca.map(|authority| {
        authority.write_own(folder).unwrap();
        folder.join("ca.pem")
    });
    ServerTls::load(TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem"), client_ca }, &["http/1.1"]).unwrap()
}

/// A client that trusts an authority, with a certificate of another one.
async fn connect(
    server: &Server,
    (user, password): (&str, &str),
    trusted: &Authority,
    own: Option<&Authority>,
) -> Result<Client, Box<dyn Error>> {
    let mut socket = TcpStream::connect(server.address).await?;
    socket.write_all(&SSL_REQUEST).await?;
    assert_eq!(socket.read_u8().await?, b'S');
    let encrypted = trusted.connector(own, "postgresql")?.connect(server_name()?, socket).await?;
    let mut config = Config::new();
    config.user(user).password(password).ssl_mode(SslMode::Disable);
    let (client, connection) = config.connect_raw(encrypted, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn where_tls_is_set_nothing_is_said_in_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new().unwrap();
    let (secret, record) = token("all", Role::Reader, &[]);
    let protection = Protection { tls: Some(encrypted(folder.path(), &ours, None)), ..protection(vec![record]) };
    let server = Server::protected(&protection).await;

    let refused = log_in(&server, "all", &secret).await.map(|_| ()).unwrap_err();
    assert_eq!(error_of(&refused).0, "28000", "{refused:?}");

    let client = connect(&server, ("all", secret.as_str()), &ours, None).await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM per_device").await, "0");
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_where_an_authority_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let (secret, record) = token("all", Role::Reader, &[]);
    let tls = encrypted(folder.path(), &ours, Some(&ours));
    let server = Server::protected(&Protection { tls: Some(tls.clone()), ..protection(vec![record]) }).await;
    let login = ("all", secret.as_str());

    let client = connect(&server, login, &ours, Some(&ours)).await.unwrap();
    assert_eq!(one(&client, "SELECT 1").await, "1");
    assert!(connect(&server, login, &ours, None).await.is_err(), "without a certificate");
    assert!(connect(&server, login, &ours, Some(&other)).await.is_err(), "with one of another authority");
    // A certificate is not a login.
    assert!(connect(&server, ("all", "wrong"), &ours, Some(&ours)).await.is_err(), "with another password");

    // A file that changes is used by the next connection; one that has begun goes on.
    other.write_own(folder.path()).unwrap();
    assert!(tls.reload().unwrap());
    let next = connect(&server, login, &ours, Some(&other)).await.unwrap();
    assert_eq!(one(&next, "SELECT 2").await, "2");
    assert!(connect(&server, login, &ours, Some(&ours)).await.is_err(), "with one of the authority before");
    assert_eq!(one(&client, "SELECT 3").await, "3");
    drop((client, next));
    server.stop().await;
}
