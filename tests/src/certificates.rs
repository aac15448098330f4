//! Authorities of a test's own, their certificates, and clients that trust them.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use types::{Error, Result};

/// The server that all certificates are for.
const SERVER: &str = "node.test";

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(failed)?;
        Ok(Authority(CertifiedIssuer::self_signed(params, key).map_err(failed)?))
    }

    /// Writes `cert.pem` and `key.pem` of a server.
    pub fn write_server(&self, folder: &Path) -> Result<()> {
        let (certificate, key) = self.signed()?;
        std::fs::write(folder.join("cert.pem"), certificate.pem())?;
        Ok(std::fs::write(folder.join("key.pem"), key.serialize_pem())?)
    }

    /// Writes the authority's own certificate to `ca.pem`.
    pub fn write_own(&self, folder: &Path) -> Result<()> {
        Ok(std::fs::write(folder.join("ca.pem"), self.0.pem())?)
    }

    /// What connects a client that trusts this authority, with a certificate of `own`.
    pub fn connector(&self, own: Option<&Authority>, protocol: &str) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).map_err(failed)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(failed)?.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let (certificate, key) = own.signed()?;
                let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(Error::internal)?;
                builder.with_client_auth_cert(vec![CertificateDer::from(certificate.der().to_vec())], key).map_err(failed)?
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn signed(&self) -> Result<(rcgen::Certificate, KeyPair)> {
        let key = KeyPair::generate().map_err(failed)?;
        let params = CertificateParams::new(vec![SERVER.to_owned()]).map_err(failed)?;
        Ok((params.signed_by(&key, &self.0).map_err(failed)?, key))
    }
}

/// The name by which clients know the server.
pub fn server_name() -> Result<ServerName<'static>> {
    ServerName::try_from(SERVER).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::internal("a certificate of a test").caused_by(error)
}
