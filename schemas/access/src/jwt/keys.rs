//! An issuer's public keys (RFC 7517): those that can check RS256 or ES256; others are left out.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use types::{Error, Result};

/// A public key, with the one algorithm that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) id: Option<String>,
    public: Public,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Public {
    Rs256 {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    Es256(Vec<u8>),
}

impl Key {
    pub(super) fn algorithm(&self) -> &'static str {
        match self.public {
            Public::Rs256 { .. } => "RS256",
            Public::Es256(_) => "ES256",
        }
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.public {
            Public::Rs256 { n, e } => RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok(),
            Public::Es256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok(),
        }
    }
}

/// What an issuer says of itself.
#[derive(Deserialize)]
pub(super) struct Configuration {
    pub(super) issuer: String,
    /// The URL of its keys.
    pub(super) jwks_uri: String,
}

pub(super) fn configuration(json: &[u8]) -> Result<Configuration> {
    serde_json::from_slice(json)
        .map_err(|error| Error::input("the issuer's configuration cannot be read").with("expected", "issuer and jwks_uri").caused_by(error))
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Reads the keys that can be used. A set without any is an error: it would lock everyone out.
pub(super) fn read(json: &[u8]) -> Result<Vec<Key>> {
    let set: KeySet = serde_json::from_slice(json).map_err(|error| Error::input("the issuer's keys cannot be read").caused_by(error))?;
    let known = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).filter_map(usable);
    let keys: Vec<Key> = known.collect();
    match keys.is_empty() {
        true => Err(Error::input("the issuer has no key that can be used").with("expected", "a key for RS256 or ES256")),
        false => Ok(keys),
    }
}

fn usable(jwk: Jwk) -> Option<Key> {
    let is_for = |algorithm: &str| jwk.alg.as_deref().is_none_or(|alg| alg == algorithm);
    let bytes = |text: &Option<String>| BASE64_URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) if is_for("RS256") => Public::Rs256 { n: bytes(&jwk.n)?, e: bytes(&jwk.e)? },
        ("EC", Some("P-256")) if is_for("ES256") => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            if (x.len(), y.len()) != (32, 32) {
                return None;
            }
            Public::Es256([&[4], &x[..], &y[..]].concat())
        }
        _ => return None,
    };
    Some(Key { id: jwk.kid, public })
}
