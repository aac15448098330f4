//! `[serving.auth]` and `[serving.tls]`: who may call, and over what. They hold for every process that answers HTTP.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::fields;

/// `[serving.auth]`: who may call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Whether a caller needs a token. Default: absent: none is needed, and only addresses of this machine are listened
    /// at.
    pub required: Option<bool>,
    /// What needs none all the same. Default: `["page", "healthz", "readyz"]`.
    pub public: BTreeSet<PublicPath>,
    /// The URL of an OIDC issuer whose JWTs are accepted beside tokens. Default: absent or empty, none.
    #[serde(deserialize_with = "fields::optional_text")]
    pub issuer: Option<String>,
    /// What the JWTs must be for (`aud`); goes with `issuer`. Default: absent or empty.
    #[serde(deserialize_with = "fields::optional_text")]
    pub audience: Option<String>,
    /// The claim that has the roles. Default: `roles`.
    #[serde(deserialize_with = "fields::name")]
    pub roles_claim: String,
    /// Names by which this machine's browsers may ask where no token is needed, beside `localhost` and addresses: a
    /// page of another site could have its own name lead here. Default: none.
    pub hosts: BTreeSet<String>,
}

/// A path that can be left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublicPath {
    Page,
    Healthz,
    Readyz,
    Metrics,
}

impl PublicPath {
    /// Returns the path of HTTP.
    pub fn path(self) -> &'static str {
        match self {
            PublicPath::Page => "/",
            PublicPath::Healthz => "/healthz",
            PublicPath::Readyz => "/readyz",
            PublicPath::Metrics => "/metrics",
        }
    }
}

/// `[serving.tls]`: what connections are encrypted with; PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// The server's certificate, followed by those that lead to its authority; goes with `key`. Default: absent or
    /// empty, no encryption.
    #[serde(deserialize_with = "fields::optional_path")]
    pub cert: Option<PathBuf>,
    /// The private key of the certificate.
    #[serde(deserialize_with = "fields::optional_path")]
    pub key: Option<PathBuf>,
    /// Clients need a certificate of one of these authorities. Default: absent or empty, they need none.
    #[serde(deserialize_with = "fields::optional_path")]
    pub client_ca: Option<PathBuf>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            required: None,
            public: [PublicPath::Page, PublicPath::Healthz, PublicPath::Readyz].into(),
            issuer: None,
            audience: None,
            roles_claim: "roles".to_owned(),
            hosts: BTreeSet::new(),
        }
    }
}
