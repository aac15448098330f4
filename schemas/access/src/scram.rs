//! SCRAM-SHA-256 (RFC 5802, RFC 7677): what is kept of a password, and how a client's proof is checked with it.

use std::num::NonZeroU32;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use catalog::ScramKeys;
use ring::digest::{SHA256, digest};
use ring::{hmac, pbkdf2};
use subtle::ConstantTimeEq;
use types::{Error, Result};

pub(crate) const SALT_BYTES: usize = 16;
/// The least that RFC 7677 allows. More would slow down guessing, which 32 random bytes have no need of.
pub(crate) const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

type Key = [u8; 32];

/// The keys of a password. It is ASCII: nothing is to be normalised.
pub(crate) fn keys(password: &str, salt: &[u8]) -> ScramKeys {
    let salted = salted(password.as_bytes(), salt, ITERATIONS);
    ScramKeys {
        salt: BASE64_STANDARD.encode(salt),
        iterations: ITERATIONS.get(),
        stored_key: BASE64_STANDARD.encode(sha256(&client_key(&salted))),
        server_key: BASE64_STANDARD.encode(server_key(&salted)),
    }
}

/// SaltedPassword of a password.
pub fn salted(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Key {
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password, &mut key);
    key
}

/// The proof that a client with this SaltedPassword sends: what a server checks. For clients and tests.
pub fn proof_of_client(salted: &Key, auth_message: &[u8]) -> Key {
    let client_key = client_key(salted);
    xor(&client_key, &mac(&sha256(&client_key), auth_message))
}

/// The keys of the catalog as bytes.
#[derive(Clone)]
pub(crate) struct LoginKeys {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
    stored_key: Key,
    server_key: Key,
}

impl LoginKeys {
    pub(crate) fn read(kept: &ScramKeys) -> Result<LoginKeys> {
        let salt = BASE64_STANDARD.decode(&kept.salt).map_err(|_| unreadable("salt"))?;
        Ok(LoginKeys {
            salt,
            iterations: kept.iterations,
            stored_key: key("stored key", &kept.stored_key)?,
            server_key: key("server key", &kept.server_key)?,
        })
    }

    /// Keys to which there is no password that anyone knows.
    pub(crate) fn of_nobody(stored_key: Key, server_key: Key) -> LoginKeys {
        LoginKeys { salt: Vec::new(), iterations: ITERATIONS.get(), stored_key, server_key }
    }

    /// Checks a client's proof. Returns the server's signature, by which the client knows the server.
    pub(crate) fn signature(&self, auth_message: &[u8], proof: &[u8]) -> Option<Key> {
        let proof: &Key = proof.try_into().ok()?;
        let client_key = xor(proof, &mac(&self.stored_key, auth_message));
        let is_right = bool::from(sha256(&client_key).ct_eq(&self.stored_key));
        is_right.then(|| mac(&self.server_key, auth_message))
    }
}

pub(crate) fn mac(key: &[u8], message: &[u8]) -> Key {
    let mut tag = [0; 32];
    tag.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref());
    tag
}

fn client_key(salted: &Key) -> Key {
    mac(salted, b"Client Key")
}

fn server_key(salted: &Key) -> Key {
    mac(salted, b"Server Key")
}

fn sha256(bytes: &[u8]) -> Key {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn xor(a: &Key, b: &Key) -> Key {
    std::array::from_fn(|i| a[i] ^ b[i])
}

fn key(what: &'static str, text: &str) -> Result<Key> {
    let bytes = BASE64_STANDARD.decode(text).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| unreadable(what))
}

fn unreadable(what: &'static str) -> Error {
    Error::corrupt("the catalog holds a token whose keys cannot be read").with("key", what)
}

#[cfg(test)]
mod tests;
