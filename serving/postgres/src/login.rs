//! Authenticates clients by SCRAM-SHA-256 (RFC 5802 and 7677), where a token is required. The user is a token's name,
//! the password the token. Over TLS the exchange can be bound to the server's certificate, so that nobody in between
//! can use it.

use std::sync::Arc;

use access::{Authenticator, Principal};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;
use rand::Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frames::{Message, first_message, put};
use crate::problem::{PROTOCOL_VIOLATION, SqlProblem};

const PLAIN: &str = "SCRAM-SHA-256";
const BOUND: &str = "SCRAM-SHA-256-PLUS";
/// How an exchange that is bound begins.
const BINDING: &str = "p=tls-server-end-point,,";
const NONCE_BYTES: usize = 18;
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";

/// Who a connection acts for.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Arc<Principal>,
    /// What let it in, if a principal is required.
    authenticator: Option<Authenticator>,
}

impl Caller {
    /// Errors: a token that was revoked, or has expired, since the connection began.
    pub(crate) fn may_go_on(&self) -> Result<(), SqlProblem> {
        let is_valid = |by: &Authenticator| by.keyring.is_still_valid(&self.principal, (by.clock)());
        match self.authenticator.as_ref().is_none_or(is_valid) {
            true => Ok(()),
            false => Err(SqlProblem::fatal(INVALID_AUTHORIZATION, "terminating connection: the token was revoked, or has expired")),
        }
    }
}

/// Finds out who a client is. `certificate` is the hash of the server's own, if the connection is encrypted.
///
/// Errors: the same for a wrong password and an unknown user.
pub(crate) async fn login<S>(
    socket: &mut S,
    buffer: &mut BytesMut,
    user: &str,
    authenticator: &Authenticator,
    certificate: Option<&[u8]>,
) -> Result<Caller, SqlProblem>
where
    S: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    if !authenticator.is_required {
        return Ok(Caller { principal: Principal::anonymous(), authenticator: None });
    }
    let mechanisms = certificate.map(|_| BOUND).into_iter().chain([PLAIN]).map(str::to_owned).collect();
    send(socket, Authentication::SASL(mechanisms)).await?;
    let InitialResponse { mechanism, first } = InitialResponse::read(secret(socket, buffer).await?)?;
    let nonce = BASE64_STANDARD.encode(rand::rng().random::<[u8; NONCE_BYTES]>());
    let exchange = Exchange::begin(&mechanism, &first, user, authenticator, certificate, &nonce)?;
    send(socket, Authentication::SASLContinue(Bytes::from(exchange.server_first.clone()))).await?;
    let last = secret(socket, buffer).await?;
    let (server_final, principal) = exchange.finish(&text(&last)?)?;
    send(socket, Authentication::SASLFinal(Bytes::from(server_final))).await?;
    Ok(Caller { principal, authenticator: Some(authenticator.clone()) })
}

/// An exchange after the client's first message.
struct Exchange {
    login: access::ScramLogin,
    user: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
    /// What the client has to repeat, in base64: how it began, and the certificate's hash if it is bound to it.
    binding: String,
}

impl Exchange {
    fn begin(
        mechanism: &str,
        first: &str,
        user: &str,
        authenticator: &Authenticator,
        certificate: Option<&[u8]>,
        nonce: &str,
    ) -> Result<Exchange, SqlProblem> {
        let header = match (mechanism, certificate) {
            (BOUND, Some(_)) if first.starts_with(BINDING) => BINDING,
            (PLAIN, _) if first.starts_with("n,,") => "n,,",
            // It could bind the exchange, and believes that the server cannot.
            (PLAIN, None) if first.starts_with("y,,") => "y,,",
            (PLAIN, Some(_)) if first.starts_with("y,,") => {
                return Err(violation("the client believes that the server cannot bind to its certificate: somebody is in between"));
            }
            _ => return Err(violation("found another mechanism or channel binding than those that were offered")),
        };
        let bare = &first[header.len()..];
        let client_nonce = bare.split(',').find_map(|attribute| attribute.strip_prefix("r=")).filter(|nonce| !nonce.is_empty());
        let client_nonce = client_nonce.ok_or_else(|| violation("the client's first message has no nonce"))?;
        let login = authenticator.keyring.scram(user, (authenticator.clock)());
        let nonce = format!("{client_nonce}{nonce}");
        let server_first = format!("r={nonce},s={},i={}", BASE64_STANDARD.encode(&login.salt), login.iterations);
        let hash = certificate.filter(|_| header == BINDING).unwrap_or_default();
        let binding = BASE64_STANDARD.encode([header.as_bytes(), hash].concat());
        Ok(Exchange { login, user: user.to_owned(), client_first_bare: bare.to_owned(), server_first, nonce, binding })
    }

    /// Returns the server's last message, and who the client is.
    fn finish(&self, last: &str) -> Result<(String, Arc<Principal>), SqlProblem> {
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or_else(|| violation("the client's last message has no proof"))?;
        let attribute = |name: &str| without_proof.split(',').find_map(|attribute| attribute.strip_prefix(name));
        if attribute("r=") != Some(&self.nonce) {
            return Err(violation("the client's last message has another nonce"));
        }
        if attribute("c=") != Some(&self.binding) {
            return Err(violation("the client is bound to another certificate: somebody is in between"));
        }
        let refused = || {
            let message = format!("password authentication failed for user \"{}\"", self.user);
            SqlProblem::fatal(INVALID_PASSWORD, message)
                .with_hint("the user is a token's name, the password the token: see `basestream token list`")
        };
        let proof = BASE64_STANDARD.decode(proof).map_err(|_| refused())?;
        let auth_message = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let (signature, principal) = self.login.finish(auth_message.as_bytes(), &proof).map_err(|_| refused())?;
        Ok((format!("v={}", BASE64_STANDARD.encode(signature)), principal))
    }
}

/// A SASLInitialResponse.
struct InitialResponse {
    mechanism: String,
    /// The client's first message.
    first: String,
}

impl InitialResponse {
    fn read(mut body: Bytes) -> Result<InitialResponse, SqlProblem> {
        let wrong = || violation("found no SASLInitialResponse");
        let end = body.iter().position(|byte| *byte == 0).ok_or_else(wrong)?;
        let mechanism = text(&body.split_to(end))?;
        body.advance(1);
        let length = body.try_get_i32().map_err(|_| wrong())?;
        if usize::try_from(length).ok() != Some(body.len()) {
            return Err(wrong());
        }
        Ok(InitialResponse { mechanism, first: text(&body)? })
    }
}

async fn secret<S: AsyncRead + Unpin + ?Sized>(socket: &mut S, buffer: &mut BytesMut) -> Result<Bytes, SqlProblem> {
    loop {
        match first_message(buffer).map_err(|error| SqlProblem::fatal(PROTOCOL_VIOLATION, error.message()))? {
            Some(Message::Secret(body)) => return Ok(body),
            Some(_) => return Err(violation("found another message than a password")),
            None => {}
        }
        if socket.read_buf(buffer).await.unwrap_or_default() == 0 {
            return Err(violation("the client left while it logged in"));
        }
    }
}

async fn send<S: AsyncWrite + Unpin + ?Sized>(socket: &mut S, authentication: Authentication) -> Result<(), SqlProblem> {
    let mut out = BytesMut::new();
    put(&mut out, PgWireBackendMessage::Authentication(authentication))?;
    socket.write_all(&out).await.map_err(|_| violation("the client left while it logged in"))?;
    socket.flush().await.map_err(|_| violation("the client left while it logged in"))
}

fn text(bytes: &[u8]) -> Result<String, SqlProblem> {
    String::from_utf8(bytes.to_vec()).map_err(|_| violation("a message of the login is not text"))
}

fn violation(message: &str) -> SqlProblem {
    SqlProblem::fatal(PROTOCOL_VIOLATION, message)
}

#[cfg(test)]
mod tests;
