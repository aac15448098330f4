//! How the HTTP of a process is protected, from the settings: the same for `up`, `serve`, `speed` and `scheduler`.

use std::sync::Arc;

use access::tls::{ServerTls, TlsFiles};
use access::{Authenticator, Issuer, IssuerSettings, Keyring};
use definitions::settings::{AuthSettings, PublicPath, TlsSettings};
use serving::http::Protection;
use tracing::warn;
use types::{Error, Result};

use super::parts::{Parts, Stage};
use crate::installation::{Installation, clock};

/// What HTTP names itself in TLS.
const ALPN: &str = "http/1.1";

/// Opens what the settings name. Nothing is listened at before: what cannot be protected as configured does not start.
///
/// Errors: `Input` for settings that do not fit, and for files that cannot be loaded.
pub(super) async fn open(installation: &Installation) -> Result<Protection> {
    open_for(installation, &[ALPN]).await
}

/// The same for a protocol that names itself so in TLS.
pub(super) async fn open_for(installation: &Installation, alpn: &[&str]) -> Result<Protection> {
    let auth = &installation.settings.serving.auth;
    let tls = files(&installation.settings.serving.tls)?.map(|files| ServerTls::load(files, alpn)).transpose()?;
    let issuer = issuer(auth)?.map(Issuer::new).transpose()?;
    let keyring = Keyring::open(&installation.catalog).await?;
    let is_required = auth.required == Some(true);
    if is_required && issuer.is_none() && !keyring.has_any(clock()()) {
        warn!("a token is required and there is none: make one with `basestream token create NAME --role admin`");
    }
    let public = auth.public.iter().copied().map(PublicPath::path).collect();
    let authenticator = Authenticator { is_required, keyring, issuer, clock: clock() };
    Ok(Protection { authenticator, public: Arc::new(public), tls, hosts: Arc::new(auth.hosts.clone()) })
}

/// Follows what changes: tokens in the catalog, the keys of the issuer, and the files of certificates.
pub(super) fn follow(parts: &mut Parts, stage: Stage, installation: &Installation, protection: &Protection) {
    let (keyring, catalog) = (protection.authenticator.keyring.clone(), installation.catalog.clone());
    parts.start(stage, "tokens", |stop| async move {
        keyring.watch(&catalog, stop).await;
        Ok(())
    });
    if let Some(issuer) = protection.authenticator.issuer.clone() {
        parts.start(stage, "issuer", |stop| async move {
            issuer.watch(stop).await;
            Ok(())
        });
    }
    if let Some(tls) = protection.tls.clone() {
        parts.start(stage, "certificates", |stop| async move {
            tls.watch(stop).await;
            Ok(())
        });
    }
}

fn files(tls: &TlsSettings) -> Result<Option<TlsFiles>> {
    match (&tls.cert, &tls.key, &tls.client_ca) {
        (None, None, None) => Ok(None),
        (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles { cert: cert.clone(), key: key.clone(), client_ca: client_ca.clone() })),
        _ => Err(Error::input("[serving.tls] is incomplete: expected cert and key, and client_ca too if clients need a certificate")),
    }
}

fn issuer(auth: &AuthSettings) -> Result<Option<IssuerSettings>> {
    match (&auth.issuer, &auth.audience) {
        (None, None) => Ok(None),
        (Some(issuer), Some(audience)) => {
            let (issuer, audience, roles_claim) = (issuer.clone(), audience.clone(), auth.roles_claim.clone());
            Ok(Some(IssuerSettings { issuer, audience, roles_claim }))
        }
        _ => Err(Error::input("[serving.auth] is incomplete: expected issuer and audience together, or neither")),
    }
}

#[cfg(test)]
mod tests;
