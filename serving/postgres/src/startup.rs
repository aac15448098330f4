//! The first messages of a connection: what it asks for before it says who it is, and the one place where a client is
//! authenticated.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{GssEncResponse, ReadyForQuery, SslResponse, TransactionStatus};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use types::{Error, Result};

use crate::cancel::{CancelKey, Cancels};
use crate::frames::{Opening, opening, put};
use crate::problem::{NOT_SUPPORTED, PROTOCOL_VIOLATION, Problem};
use crate::session::Session;

/// A client that has not said who it is by then is let go.
pub(crate) const STARTUP_TIME: Duration = Duration::from_secs(10);

/// Requests for encryption before a startup: one of each kind.
const MAX_REQUESTS: usize = 2;
/// The protocol that is spoken, as its messages write it.
const PROTOCOL_3_0: i32 = 3 << 16;

/// What a client said of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Client {
    user: String,
    parameters: Vec<(String, String)>,
    minor: u16,
}

/// Reads what a client begins with. `None` if the connection is for something else, which is done.
pub(crate) async fn greet<S>(socket: &mut S, buffer: &mut BytesMut, cancels: &Cancels) -> Result<Option<Client>, Problem>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for _ in 0..=MAX_REQUESTS {
        let Some(opening) = read(socket, buffer).await? else { return Ok(None) };
        let refusal = match opening {
            // Nothing is encrypted yet: the client decides whether it goes on without.
            Opening::Ssl => PgWireBackendMessage::SslResponse(SslResponse::Refuse),
            Opening::Gss => PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse),
            Opening::Cancel { process, key } => {
                cancels.cancel(process, &key);
                return Ok(None);
            }
            Opening::Startup { minor, parameters } => return client(minor, parameters).map(Some),
        };
        let mut out = BytesMut::new();
        put(&mut out, refusal)?;
        if socket.write_all(&out).await.is_err() {
            return Ok(None);
        }
    }
    Err(Problem::fatal(PROTOCOL_VIOLATION, "found another request for encryption, expected a startup message"))
}

async fn read<S: AsyncRead + Unpin>(socket: &mut S, buffer: &mut BytesMut) -> Result<Option<Opening>, Problem> {
    loop {
        match opening(buffer) {
            Ok(Some(opening)) => return Ok(Some(opening)),
            Ok(None) => {}
            Err(error) => return Err(Problem::fatal(PROTOCOL_VIOLATION, error.message())),
        }
        if socket.read_buf(buffer).await.unwrap_or_default() == 0 {
            return Ok(None);
        }
    }
}

fn client(minor: u16, parameters: Vec<(String, String)>) -> Result<Client, Problem> {
    let get = |name: &str| parameters.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    if get("replication").is_some_and(|value| !["", "false", "off", "no", "0"].contains(&value)) {
        return Err(Problem::fatal(NOT_SUPPORTED, "replication is not supported"));
    }
    let user = get("user").filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| Problem::fatal("28000", "no PostgreSQL user name specified in startup packet"))?.to_owned();
    Ok(Client { user, parameters, minor })
}

/// Decides whether a client may connect: here alone. There are no users yet, so anybody may who reaches the address,
/// and [`allowed_address`] sees to it that this is this machine.
fn authenticate(_client: &Client) -> Result<(), Problem> {
    Ok(())
}

/// Errors: `Input` for an address that other machines reach.
pub(crate) fn allowed_address(address: SocketAddr) -> Result<()> {
    let is_loopback = match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    };
    if is_loopback {
        return Ok(());
    }
    Err(Error::input(format!(
        "found the address {address} for the PostgreSQL protocol, which other machines reach: expected one of this machine, such as \
         127.0.0.1:{}, because every user is accepted without a password",
        address.port()
    )))
}

/// Answers a client's startup: it may ask now.
pub(crate) fn welcome(client: &Client, key: &CancelKey, out: &mut BytesMut) -> Result<Session, Problem> {
    authenticate(client)?;
    let session = Session::begin(&client.user, &client.parameters)
        .map_err(|problem| Problem::fatal(problem.state, "a parameter of the startup is not understood").because(&problem))?;
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
    fn only_this_machine_is_listened_to() {
        for address in ["127.0.0.1:5433", "127.8.8.8:1", "[::1]:5433", "[::ffff:127.0.0.1]:5433"] {
            assert!(allowed_address(address.parse().unwrap()).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:5433", "192.168.1.1:5433", "[::]:5433", "[::ffff:10.0.0.1]:5433"] {
            let error = allowed_address(address.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(address) && error.contains("127.0.0.1:5433"), "{error}");
        }
    }

    #[test]
    fn a_client_says_who_it_is() {
        let parameters = |of: &[(&str, &str)]| of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>();
        assert_eq!(client(0, parameters(&[("database", "x")])).unwrap_err().state, "28000");
        assert_eq!(client(0, parameters(&[("user", "a"), ("replication", "database")])).unwrap_err().state, NOT_SUPPORTED);
        assert_eq!(client(0, parameters(&[("user", "a")])).unwrap().user, "a");
    }
}
