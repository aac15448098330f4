//! The certificate and key of a server, from files that are read again when they change. Every protocol uses the same.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::outage::{Attempts, Outage};
use types::{Error, Result};

mod validity;

use validity::{Validity, validity};

/// The outage of a certificate that was valid before. Clients that check it refuse the server.
pub const CERTIFICATE_EXPIRED: &str = "the certificate has expired";

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those that lead to its authority.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Clients need a certificate of one of these authorities.
    pub client_ca: Option<PathBuf>,
}

/// A cheap-to-clone handle. What was loaded last stays while the files cannot be loaded.
#[derive(Clone)]
pub struct ServerTls(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    alpn: Vec<Vec<u8>>,
    current: RwLock<Loaded>,
    loads: Attempts,
}

struct Loaded {
    contents: Contents,
    certificate: CertificateDer<'static>,
    validity: Option<Validity>,
    config: Arc<ServerConfig>,
}

#[derive(PartialEq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl ServerTls {
    /// Loads the files for a protocol that names itself so (ALPN), such as `http/1.1`.
    ///
    /// Errors: `Input` with the file that is missing or wrong.
    pub fn load(files: TlsFiles, alpn: &[&str]) -> Result<ServerTls> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let loaded = Loaded::read(&files, &alpn)?;
        let loads = Attempts::new("the changed TLS files cannot be loaded");
        let tls = ServerTls(Arc::new(Inner { files, alpn, current: RwLock::new(loaded), loads }));
        tls.warn_of_time(Utc::now());
        Ok(tls)
    }

    /// What the next connection is encrypted with.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// The server's own certificate: a login by SCRAM can be bound to it.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).certificate.clone()
    }

    /// Loads the files if they changed. Returns whether they did.
    pub fn reload(&self) -> Result<bool> {
        let contents = Contents::read(&self.0.files)?;
        if self.0.current.read().unwrap_or_else(PoisonError::into_inner).contents == contents {
            return Ok(false);
        }
        let loaded = Loaded::from_contents(contents, &self.0.files, &self.0.alpn)?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        self.warn_of_time(Utc::now());
        Ok(true)
    }

    /// Loads the files whenever they change, until `stop`. Certificate and key are two files: for a moment they may not
    /// fit.
    pub async fn watch(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let tls = self.clone();
            let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await.map_err(Error::from).flatten();
            self.note(&reloaded);
        }
    }

    /// Logs what is new: files that cannot be loaded stay so until somebody writes them.
    fn note(&self, reloaded: &Result<bool>) {
        let known = self.0.loads.outage().map(|outage| outage.error);
        // Whatever is wrong with the files, connections are not encrypted as they should be.
        let noted = reloaded.as_ref().map_err(|error| Error::unavailable(error.to_string()));
        self.0.loads.note(&noted);
        match &noted {
            Ok(true) => info!(cert = %self.0.files.cert.display(), "TLS files loaded again"),
            Ok(false) => {}
            Err(error) if known == Some(error.to_string()) => {}
            Err(error) => warn!(%error, "the TLS files changed and cannot be loaded; the previous ones stay in use"),
        }
    }

    /// Returns what is wrong with the files at the moment.
    pub fn outage(&self) -> Option<Outage> {
        self.0.loads.outage().or_else(|| self.expired(Utc::now()))
    }

    fn expired(&self, now: DateTime<Utc>) -> Option<Outage> {
        let until = self.validity()?.until;
        // Negative before it expires.
        let lasting = (now - until).to_std().ok()?;
        let error = format!("{} was valid until {until}", self.0.files.cert.display());
        Some(Outage { what: CERTIFICATE_EXPIRED, lasting, error, errors: BTreeMap::new() })
    }

    /// What is loaded is used all the same: a process has other work than to answer clients.
    fn warn_of_time(&self, now: DateTime<Utc>) {
        let file = self.0.files.cert.display();
        match self.validity() {
            Some(Validity { until, .. }) if until < now => {
                warn!(setting = "serving.tls.cert", %file, %until, "the certificate has expired: clients refuse it");
            }
            Some(Validity { from, .. }) if now < from => {
                warn!(setting = "serving.tls.cert", %file, %from, "the certificate is not valid yet: clients refuse it");
            }
            _ => {}
        }
    }

    fn validity(&self) -> Option<Validity> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).validity
    }
}

impl Loaded {
    fn read(files: &TlsFiles, alpn: &[Vec<u8>]) -> Result<Loaded> {
        Loaded::from_contents(Contents::read(files)?, files, alpn)
    }

    fn from_contents(contents: Contents, files: &TlsFiles, alpn: &[Vec<u8>]) -> Result<Loaded> {
        let chain = certificates(&contents.cert, "serving.tls.cert", &files.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| {
            let wrong = wrong("there is no private key in the file", "serving.tls.key", &files.key);
            wrong.with("expected", "a private key as PEM").caused_by(error)
        })?;
        let certificate = chain[0].clone();
        let (others, same_key) = (chain[1..].to_vec(), key.clone_key());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(unusable)?;
        let builder = match (&contents.client_ca, &files.client_ca) {
            (Some(text), Some(path)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(text, "serving.tls.client_ca", path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| wrong("a certificate cannot be used", "serving.tls.client_ca", path).caused_by(error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
                builder.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| match others.iter().any(|other| fits(other, &same_key, &provider)) {
                true => wrong("the certificates are in the wrong order", "serving.tls.cert", &files.cert)
                    .with("found", "the certificate of the key after another one")
                    .with("expected", "the server's own certificate first, then those that lead to its authority"),
                false => wrong("the key does not fit the certificate, or one of them cannot be used", "serving.tls.key", &files.key)
                    .caused_by(error),
            })?;
        config.alpn_protocols = alpn.to_vec();
        Ok(Loaded { contents, validity: validity(&certificate), certificate, config: Arc::new(config) })
    }
}

fn fits(certificate: &CertificateDer<'static>, key: &PrivateKeyDer<'static>, provider: &CryptoProvider) -> bool {
    let loaded = provider.key_provider.load_private_key(key.clone_key());
    loaded.is_ok_and(|key| CertifiedKey::new(vec![certificate.clone()], key).keys_match().is_ok())
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Contents> {
        let read =
            |setting, path: &Path| std::fs::read(path).map_err(|error| wrong("the file cannot be read", setting, path).caused_by(error));
        Ok(Contents {
            cert: read("serving.tls.cert", &files.cert)?,
            key: read("serving.tls.key", &files.key)?,
            client_ca: files.client_ca.as_deref().map(|path| read("serving.tls.client_ca", path)).transpose()?,
        })
    }
}

/// At least one.
fn certificates(text: &[u8], setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let none = || wrong("there is no certificate in the file", setting, path).with("expected", "certificates as PEM");
    let found: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(none()),
        Err(error) => Err(none().caused_by(error)),
    }
}

fn wrong(message: &str, setting: &'static str, path: &Path) -> Error {
    Error::input(message).with("setting", setting).with("file", path.display())
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::input("TLS cannot be set up").with("setting", "serving.tls").caused_by(error)
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.0.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
