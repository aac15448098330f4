//! Refuses what pages of other sites send through a browser.
//!
//! Where the server is open to everyone on this machine, the header `Host` is checked. A page of another site can have
//! its own name resolve to a loopback address (DNS rebinding), and would then be a page of this server to a browser.
//! Such a request names its site in `Host`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};

use super::problem::HttpProblem;
use super::rights::Protection;

/// The names by which the server may be asked. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    /// Those of the setting, where no principal is needed.
    names: Option<Arc<BTreeSet<String>>>,
    is_loopback: bool,
}

impl Hosts {
    /// Any name, for a server that needs a principal, is asked by other machines, or listens nowhere.
    pub(super) fn new(protection: &Protection, address: Option<SocketAddr>) -> Hosts {
        let is_open = !protection.authenticator.is_required;
        let is_loopback = address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        Hosts { names: is_open.then(|| protection.hosts.clone()), is_loopback }
    }

    /// Errors: 421 for a name that is not allowed. A request without a name comes from no browser.
    pub(super) fn check(&self, request: &Request) -> Result<(), HttpProblem> {
        let Some(names) = self.names.as_ref().filter(|_| self.is_loopback) else { return Ok(()) };
        let Some(found) = asked_host(request) else { return Ok(()) };
        // An address with a port, as programs of this machine mostly write it, is not taken apart.
        if found.parse::<SocketAddrV4>().is_ok() || found.parse::<Authority>().is_ok_and(|authority| is_allowed(authority.host(), names)) {
            return Ok(());
        }
        let detail =
            format!("the host \"{found}\" is not known here: expected localhost, an address, or a name of the setting serving.auth.hosts");
        Err(HttpProblem::plain(StatusCode::MISDIRECTED_REQUEST, detail))
    }

    /// Whether a browser says that a page of another site sent a request that may write. Without this, any page that a
    /// developer visits could post to localhost.
    ///
    /// Browsers send `Sec-Fetch-Site` over TLS and to `localhost`, but not to `http://0.0.0.0:8080`, which is this
    /// machine too, nor to the address of another one. There `Origin` names the page's site. Where a principal is
    /// needed, that does not count: a page of another site has no token.
    pub(super) fn is_from_another_site(&self, request: &Request) -> bool {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return false;
        }
        let site = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
        let origin = request.headers().get(ORIGIN).map(|origin| origin.as_bytes());
        match (site, origin, &self.names) {
            (Some(site), _, _) => site != b"same-origin" && site != b"none",
            (None, Some(origin), Some(names)) => !is_own(origin, asked_host(request), names),
            _ => false,
        }
    }
}

/// The name by which a request asks, with the port if it has one.
fn asked_host(request: &Request) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default()),
    }
}

/// Whether an origin is this server, as its pages know it: by the name that is asked, or one of ours, in whose place a
/// proxy may ask by another. Pages that belong to no site have the origin `null`.
fn is_own(origin: &[u8], asked: Option<&str>, names: &BTreeSet<String>) -> bool {
    let Some((_, site)) = std::str::from_utf8(origin).ok().and_then(|origin| origin.split_once("://")) else { return false };
    let is_asked = asked.is_some_and(|asked| asked.eq_ignore_ascii_case(site));
    is_asked || site.parse::<Authority>().is_ok_and(|site| is_ours(site.host(), names))
}

fn is_ours(host: &str, names: &BTreeSet<String>) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// An address cannot lead elsewhere; a name can, unless it is ours.
fn is_allowed(host: &str, names: &BTreeSet<String>) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let is_local = host == "localhost" || host.ends_with(".localhost");
    is_local || address.parse::<IpAddr>().is_ok() || is_ours(&host, names)
}

#[cfg(test)]
mod tests;
