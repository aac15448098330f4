//! Checks the header `Host` where the server is open to everyone on this machine. A page of another site can have its
//! own name resolve to a loopback address (DNS rebinding), and would then be a page of this server to a browser. Such a
//! request names its site in `Host`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::uri::Authority;

use super::problem::HttpProblem;
use super::rights::Protection;

/// The names that are allowed, if not all are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Hosts(Option<Arc<BTreeSet<String>>>);

impl Hosts {
    /// Any name, for a server that needs a principal, is asked by other machines, or listens nowhere.
    pub(super) fn new(protection: &Protection, address: Option<SocketAddr>) -> Hosts {
        let is_open = !protection.authenticator.is_required;
        let is_loopback = address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        Hosts((is_open && is_loopback).then(|| protection.hosts.clone()))
    }

    /// Errors: 421 for a name that is not allowed. A request without a name comes from no browser.
    pub(super) fn check(&self, request: &Request) -> Result<(), HttpProblem> {
        let Some(names) = &self.0 else { return Ok(()) };
        let found = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => match request.headers().get(HOST) {
                None => return Ok(()),
                Some(host) => host.to_str().unwrap_or_default(),
            },
        };
        // An address with a port, as programs of this machine mostly write it, is not taken apart.
        if found.parse::<SocketAddrV4>().is_ok() || found.parse::<Authority>().is_ok_and(|authority| is_allowed(authority.host(), names)) {
            return Ok(());
        }
        let detail =
            format!("the host \"{found}\" is not known here: expected localhost, an address, or a name of the setting serving.auth.hosts");
        Err(HttpProblem::plain(StatusCode::MISDIRECTED_REQUEST, detail))
    }
}

/// An address cannot lead elsewhere; a name can, unless it is ours.
fn is_allowed(host: &str, names: &BTreeSet<String>) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let is_local = host == "localhost" || host.ends_with(".localhost");
    is_local || address.parse::<IpAddr>().is_ok() || names.iter().any(|name| name.eq_ignore_ascii_case(&host))
}

#[cfg(test)]
mod tests;
