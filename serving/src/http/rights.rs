//! Runs before every handler: finds out who calls, and whether this caller may use the path at all. Whether a query may
//! read its tables is decided where it is planned.
//!
//! | path | needs |
//! | --- | --- |
//! | `/`, `/healthz`, `/readyz`, `/metrics` | nothing, where the setting names it as public |
//! | `/`, `/healthz` | a principal |
//! | `/readyz`, `/metrics`, `/v1/status` | to read the process |
//! | `/v1/openapi.json` | a principal |
//! | `/v1/views`, `/v1/streams`, `/v1/hot-keys`, `/v1/sinks`, `/v1/sql` | a principal; the answer has what it may read |
//! | `/v1/sql/cursors/{cursor}` | the principal whose answer it is |
//! | `/v1/views/{view}`, `../row`, `../rows` | to read the view |
//! | `/v1/rows` | to read each view that it names |
//! | `/v1/views/{view}/runs` | to operate the view |
//! | `/v1/streams/{stream}/events` | to append to the stream |
//! | `/v1/sinks/{sink}` | to read its views; with `store=true` also to append to its stream |
//! | `/v1/parameters` | to read the process |
//! | `/v1/parameters/{parameter}` | to operate the parameter |
//! | `/v1/alerts` | a principal; the answer has the alerts over views that it may read |
//!
//! A path that is not in the table needs an admin.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::tls::ServerTls;
use access::{Action, Authenticator, Issuer, Object, Principal, allow, audit, may};
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use types::outage::Outage;
use types::tiles::Clock;
use types::{Error, ErrorKind, Result};

use super::problem::HttpProblem;
use super::{CURSOR_PATH, OPENAPI_PATH, SQL_PATH};

/// What anyone may ask for.
pub type PublicPaths = BTreeSet<&'static str>;

/// How a server is protected. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Protection {
    pub authenticator: Authenticator,
    /// Of `/`, `/healthz`, `/readyz` and `/metrics`, those that need no principal.
    pub public: Arc<PublicPaths>,
    /// Connections are encrypted with it; plain text is refused then.
    pub tls: Option<ServerTls>,
    /// Names by which browsers of this machine may ask where no principal is needed, beside `localhost` and addresses.
    pub hosts: Arc<BTreeSet<String>>,
}

impl Protection {
    /// None: everyone may do everything.
    pub fn none(clock: Clock) -> Result<Protection> {
        Ok(Protection { authenticator: Authenticator::open(clock)?, public: Arc::default(), tls: None, hosts: Arc::default() })
    }

    /// What fails of it at the moment.
    pub fn outages(&self) -> impl Iterator<Item = Outage> {
        let Authenticator { keyring, issuer, .. } = &self.authenticator;
        let tls = self.tls.as_ref().and_then(ServerTls::outage);
        keyring.outage().into_iter().chain(issuer.as_ref().and_then(Issuer::outage)).chain(tls)
    }
}

/// What a path needs.
#[derive(Debug, PartialEq, Eq)]
enum Needs<'a> {
    /// Any principal.
    Principal,
    Right(Action, Object<'a>),
}

/// Lets a request through to its handler, which finds its principal among the request's extensions. `name` is the first
/// parameter in the path.
pub(super) async fn authorize(
    protection: &Protection,
    path: Option<&str>,
    name: Option<&str>,
    mut request: Request,
    next: Next,
) -> Response {
    let authorization = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let caller = protection.authenticator.caller(authorization).await;
    match decide(path, name, &protection.public, caller) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => {
            refused(&error);
            audit_refusal(path, name.unwrap_or_default(), &error);
            HttpProblem::from(error).into_response()
        }
    }
}

/// Whether a caller may ask for a path; `name` is the view or stream in it.
fn decide(path: Option<&str>, name: Option<&str>, public: &PublicPaths, caller: Result<Arc<Principal>>) -> Result<Arc<Principal>> {
    if path.is_some_and(|path| public.contains(path)) {
        return Ok(caller.unwrap_or_else(|_| Principal::nobody()));
    }
    let principal = caller?;
    if let Needs::Right(action, object) = needs(path, name.unwrap_or_default()) {
        allow(&principal, action, object)?;
    }
    Ok(principal)
}

fn needs<'a>(path: Option<&str>, name: &'a str) -> Needs<'a> {
    match path {
        // A path that is not there is answered so to any principal.
        None => Needs::Principal,
        Some("/" | "/healthz" | "/v1/views" | "/v1/streams" | "/v1/hot-keys" | OPENAPI_PATH | SQL_PATH | CURSOR_PATH) => Needs::Principal,
        // Decided where they are answered: what each reads follows from its body, or from its plan.
        Some("/v1/rows" | "/v1/sinks" | "/v1/sinks/{sink}" | "/v1/alerts") => Needs::Principal,
        Some("/v1/parameters/{parameter}") => Needs::Right(Action::Operate, Object::Parameter(name)),
        Some("/readyz" | "/metrics" | "/v1/status" | "/v1/parameters") => Needs::Right(Action::Read, Object::Process),
        Some("/v1/views/{view}" | "/v1/views/{view}/row" | "/v1/views/{view}/rows") => Needs::Right(Action::Read, Object::View(name)),
        Some("/v1/views/{view}/runs") => Needs::Right(Action::Operate, Object::View(name)),
        Some("/v1/streams/{stream}/events") => Needs::Right(Action::Append, Object::Stream(name)),
        Some(_) => Needs::Right(Action::Administer, Object::Installation),
    }
}

/// Whether a caller sees the names and errors in `/readyz`, and which workers are not reached.
pub(super) fn sees_details(principal: &Principal) -> bool {
    may(principal, Action::Read, Object::Process)
}

/// A change that a principal was refused goes into the audit log, as one that it made does.
fn audit_refusal(path: Option<&str>, name: &str, error: &Error) {
    let Needs::Right(action @ (Action::Operate | Action::Administer), object) = needs(path, name) else { return };
    if let Some(principal) = error.fact("principal") {
        audit(principal, &action.to_string(), &object.to_string(), &Err::<(), _>(error.copied()));
    }
}

fn refused(error: &Error) {
    let reason = match error.kind() {
        ErrorKind::Unauthenticated => "unauthenticated",
        ErrorKind::Forbidden => "forbidden",
        _ => "unavailable",
    };
    metrics::counter!("basestream_serving_refused_total", "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests;
