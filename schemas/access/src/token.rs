//! Makes tokens: 32 random bytes as text. The catalog stores a hash of them.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use catalog::{Role, TokenLimits, TokenRecord};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use types::tiles::Micros;
use types::{Error, Result};

use crate::scram;

/// How every token begins, so that scanners for secrets know one.
pub const TOKEN_PREFIX: &str = "bst_";

const SECRET_BYTES: usize = 32;
/// PostgreSQL's user names are no longer.
const MAX_NAME_BYTES: usize = 63;

/// What a token is to allow.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    /// The views and streams that it is limited to; both empty: not limited.
    pub views: Vec<String>,
    pub streams: Vec<String>,
    pub created_by: String,
    pub expires_at: Option<Micros>,
}

/// Makes a token. Returns its text, which is kept nowhere, and its record.
///
/// Errors: `Input` for text that is not a name, and for limits that mean nothing.
pub fn new_token(new: NewToken, now: Micros) -> Result<(String, TokenRecord)> {
    check(&new)?;
    let secret: [u8; SECRET_BYTES] = random()?;
    let text = format!("{TOKEN_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(secret));
    let NewToken { name, role, views, streams, created_by, expires_at } = new;
    let is_limited = !views.is_empty() || !streams.is_empty();
    let record = TokenRecord {
        name,
        role,
        only: is_limited.then_some(TokenLimits { views, streams }),
        hash: BASE64_STANDARD.encode(hash(&text)),
        scram: scram::keys(&text, &random::<{ scram::SALT_BYTES }>()?),
        created_at: now,
        created_by,
        expires_at,
        revoked_at: None,
    };
    Ok((text, record))
}

/// The SHA-256 of a token. A hash that is slow on purpose would add nothing: nobody guesses 32 random bytes.
pub fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::internal("the system gives no random bytes"))?;
    Ok(bytes)
}

fn check(new: &NewToken) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
    if new.name.is_empty() || new.name.len() > MAX_NAME_BYTES || !new.name.chars().all(is_plain) {
        let expected = format!("1 to {MAX_NAME_BYTES} letters, digits and _ - . @");
        return Err(Error::input(format!("\"{}\" is not a valid name of a token: expected {expected}", new.name)));
    }
    match new.role {
        Role::Admin if !new.views.is_empty() || !new.streams.is_empty() => {
            Err(Error::input("the role admin is not limited to views or streams: expected neither, or another role"))
        }
        Role::Writer if !new.views.is_empty() => {
            Err(Error::input("the role writer appends to streams and reads no view: expected streams, or another role"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
