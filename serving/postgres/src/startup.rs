//! The first messages of a connection, before the client says who it is: above all the request for encryption.

use std::sync::Arc;
use std::time::Duration;

use access::tls::ServerTls;
use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{ReadyForQuery, SslResponse, TransactionStatus};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};
use ring::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::cancel::{CancelKey, Cancels};
use crate::frames::{Opening, opening, put};
use crate::problem::{NOT_SUPPORTED, PROTOCOL_VIOLATION, SqlProblem};
use crate::session::ClientSession;

/// A client that has not identified itself by then is disconnected.
pub(crate) const STARTUP_TIME: Duration = Duration::from_secs(10);
/// A client that does not take the end of an encrypted connection is left after this time.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(5);

/// What the protocol names itself in TLS.
const ALPN: &[u8] = b"postgresql";
/// Requests for encryption before a startup: one of each kind.
const MAX_REQUESTS: usize = 2;
/// The protocol that is spoken, as its messages write it.
const PROTOCOL_3_0: i32 = 3 << 16;

/// The startup message, in which a client says who it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StartupMessage {
    pub(crate) user: String,
    parameters: Vec<(String, String)>,
    minor: u16,
}

/// A client's connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection whose client has sent its startup message: what comes before it logs in.
pub(crate) struct Handshake {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) client: StartupMessage,
    /// What a login can be bound to, if the connection is encrypted: see [`end_point`].
    pub(crate) certificate: Option<Vec<u8>>,
}

/// Why a client was not let in.
pub(crate) enum StartupError {
    /// The connection was for something else, which is done, or the client has gone.
    Done,
    Refused(Box<dyn Stream>, SqlProblem),
}

/// Reads a client's first messages, up to the startup message. With `tls`, only an encrypted startup is answered.
pub(crate) async fn shake_hands(
    socket: TcpStream,
    buffer: &mut BytesMut,
    cancels: &Cancels,
    tls: Option<&ServerTls>,
) -> Result<Handshake, StartupError> {
    let mut stream: Box<dyn Stream> = Box::new(socket);
    // Encryption that the client has to ask for first.
    let (mut missing, mut certificate) = (tls, None);
    for _ in 0..=MAX_REQUESTS {
        let opening = match read(&mut stream, buffer).await {
            Ok(Some(opening)) => opening,
            Ok(None) => return Err(StartupError::Done),
            Err(problem) => return Err(StartupError::Refused(stream, problem)),
        };
        let accepted = match opening {
            Opening::Cancel { process, key } => {
                cancels.cancel(process, &key);
                return Err(StartupError::Done);
            }
            Opening::Startup { .. } if missing.is_some() => return Err(StartupError::Refused(stream, not_encrypted())),
            Opening::Startup { minor, parameters } => {
                return match client(minor, parameters) {
                    Ok(client) => Ok(Handshake { stream, client, certificate }),
                    Err(problem) => Err(StartupError::Refused(stream, problem)),
                };
            }
            Opening::Ssl => missing,
            Opening::Gss => None,
        };
        let reply = if accepted.is_some() { SslResponse::Accept } else { SslResponse::Refuse };
        send_reply(&mut stream, reply).await?;
        if let Some(tls) = accepted {
            stream = encrypted(stream, buffer, tls).await?;
            certificate = end_point(&tls.certificate());
            missing = None;
        }
    }
    Err(StartupError::Refused(
        stream,
        SqlProblem::fatal(PROTOCOL_VIOLATION, "found another request for encryption, expected a startup message"),
    ))
}

fn not_encrypted() -> SqlProblem {
    let problem = SqlProblem::fatal("28000", "the connection is not encrypted, and [serving.tls] is set");
    problem.with_hint("connect with sslmode=require or stricter")
}

/// Answers a request for encryption.
async fn send_reply(stream: &mut Box<dyn Stream>, reply: SslResponse) -> Result<(), StartupError> {
    let mut out = BytesMut::new();
    let written = put(&mut out, PgWireBackendMessage::SslResponse(reply));
    if written.is_err() || stream.write_all(&out).await.is_err() {
        return Err(StartupError::Done);
    }
    Ok(())
}

async fn encrypted(stream: Box<dyn Stream>, buffer: &BytesMut, tls: &ServerTls) -> Result<Box<dyn Stream>, StartupError> {
    // What came before the handshake could have been put there by somebody in between.
    if !buffer.is_empty() {
        let problem = SqlProblem::fatal(PROTOCOL_VIOLATION, "found bytes between the request for encryption and the handshake");
        return Err(StartupError::Refused(stream, problem));
    }
    let mut config = (*tls.config()).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    let encrypted = accepted.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed"));
    Ok(Box::new(encrypted.map_err(|_| StartupError::Done)?))
}

/// The signature algorithms with SHA-256, RSA and ECDSA, as certificates have them.
const WITH_SHA256: [&[u8]; 2] =
    [&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]];

/// The certificate's hash, by the hash function of its signature (RFC 5929, `tls-server-end-point`). Of others than
/// SHA-256 none is made: logins are not bound then.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let is_signed_with = |algorithm: &&[u8]| certificate.windows(algorithm.len()).any(|bytes| bytes == *algorithm);
    WITH_SHA256.iter().any(is_signed_with).then(|| digest(&SHA256, certificate).as_ref().to_vec())
}

async fn read<S: AsyncRead + Unpin + ?Sized>(socket: &mut S, buffer: &mut BytesMut) -> Result<Option<Opening>, SqlProblem> {
    loop {
        match opening(buffer) {
            Ok(Some(opening)) => return Ok(Some(opening)),
            Ok(None) => {}
            Err(error) => return Err(SqlProblem::fatal(PROTOCOL_VIOLATION, error.message())),
        }
        if socket.read_buf(buffer).await.unwrap_or_default() == 0 {
            return Ok(None);
        }
    }
}

fn client(minor: u16, parameters: Vec<(String, String)>) -> Result<StartupMessage, SqlProblem> {
    let get = |name: &str| parameters.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    if get("replication").is_some_and(|value| !["", "false", "off", "no", "0"].contains(&value)) {
        return Err(SqlProblem::fatal(NOT_SUPPORTED, "replication is not supported"));
    }
    let user = get("user").filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| SqlProblem::fatal("28000", "no PostgreSQL user name specified in startup packet"))?.to_owned();
    Ok(StartupMessage { user, parameters, minor })
}

/// Answers the startup of a client that has logged in: its session begins.
pub(crate) fn begin_session(client: &StartupMessage, key: &CancelKey, out: &mut BytesMut) -> Result<ClientSession, SqlProblem> {
    let session = ClientSession::begin(&client.user, &client.parameters)
        .map_err(|problem| SqlProblem::fatal(problem.state, "a parameter of the startup is not understood").because(&problem))?;
    let options: Vec<String> = client.parameters.iter().map(|(name, _)| name).filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if client.minor > 0 || !options.is_empty() {
        put(out, PgWireBackendMessage::NegotiateProtocolVersion(NegotiateProtocolVersion::new(PROTOCOL_3_0, options)))?;
    }
    put(out, PgWireBackendMessage::Authentication(Authentication::Ok))?;
    for (name, value) in session.reported() {
        put(out, PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name.to_owned(), value)))?;
    }
    put(out, PgWireBackendMessage::BackendKeyData(BackendKeyData::new(key.process, SecretKey::I32(key.key))))?;
    put(out, PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle)))?;
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_who_it_is() {
        let parameters = |of: &[(&str, &str)]| of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>();
        assert_eq!(client(0, parameters(&[("database", "x")])).unwrap_err().state, "28000");
        assert_eq!(client(0, parameters(&[("user", "a"), ("replication", "database")])).unwrap_err().state, NOT_SUPPORTED);
        assert_eq!(client(0, parameters(&[("user", "a")])).unwrap().user, "a");
    }
}
