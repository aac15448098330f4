//! Where a process listens. Addresses are bound first, so that one in use is reported before any work starts; clients
//! that connect while the node is loading wait for it. An address that other machines can reach is refused unless the
//! settings say who may do what.

use std::net::SocketAddr;

use access::may_listen;
use serving::ClientListener;
use serving::http::{BoundListener, Protection, listen};
use types::{Error, Result};

use super::protection;
use crate::installation::Installation;

/// What a process with a node listens with.
pub(super) struct Listeners {
    pub(super) http: BoundListener,
    pub(super) postgres: Option<ClientListener>,
    pub(super) flight: Option<ClientListener>,
}

impl Listeners {
    /// Binds what the settings name, once it is known how it is protected.
    pub(super) async fn bind(installation: &Installation) -> Result<(Listeners, Protection)> {
        let serving = &installation.settings.serving;
        let http = bind("serving.http", &serving.http, installation).await?;
        let protection = protection::open(installation).await?;
        let postgres = match address("serving.postgres", serving.postgres.as_deref(), installation).await? {
            Some(address) => Some(postgres_wire::listen(address).map_err(|error| error.with("setting", "serving.postgres"))?),
            None => None,
        };
        let flight = match address("serving.flight", serving.flight.as_deref(), installation).await? {
            Some(address) => Some(flight_sql::listen(address).map_err(|error| error.with("setting", "serving.flight"))?),
            None => None,
        };
        Ok((Listeners { http, postgres, flight }, protection))
    }
}

/// Binds the HTTP of a process without a node, if its setting names an address.
pub(super) async fn bind_optional(
    setting: &str,
    address: Option<&str>,
    installation: &Installation,
) -> Result<Option<(BoundListener, Protection)>> {
    let Some(address) = address else { return Ok(None) };
    let listener = bind(setting, address, installation).await?;
    Ok(Some((listener, protection::open(installation).await?)))
}

async fn bind(setting: &str, text: &str, installation: &Installation) -> Result<BoundListener> {
    let address = allowed_address(setting, text, installation).await?;
    listen(address).await.map_err(|error| error.with("setting", setting))
}

async fn address(setting: &str, text: Option<&str>, installation: &Installation) -> Result<Option<SocketAddr>> {
    match text {
        Some(text) => allowed_address(setting, text, installation).await.map(Some),
        None => Ok(None),
    }
}

/// The address that a setting names, where the process may listen there.
pub(super) async fn allowed_address(setting: &str, text: &str, installation: &Installation) -> Result<SocketAddr> {
    let wrong = || Error::input("the address cannot be found").with("setting", setting).with("found", text);
    let mut found = tokio::net::lookup_host(text).await.map_err(|error| wrong().caused_by(error))?;
    let address = found.next().ok_or_else(wrong)?;
    may_listen(setting, address, installation.settings.serving.auth.required)?;
    Ok(address)
}
