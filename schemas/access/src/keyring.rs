//! The catalog's tokens in the memory of a process: read again when the catalog has changed, and looked up without a
//! query to it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use catalog::{Catalog, Revision, TokenRecord};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::outage::{Attempts, Outage};
use types::tiles::Micros;
use types::{Error, Result};

use crate::principal::Principal;
use crate::scram::{self, LoginKeys};
use crate::token::{hash, random};

/// How often to look whether the catalog moved: a token that was revoked is refused within a second.
const POLL: Duration = Duration::from_millis(250);

/// Tokens are looked up by the beginning of their hash, and compared as a whole.
const PREFIX_BYTES: usize = 8;
type Prefix = [u8; PREFIX_BYTES];

/// A cheap-to-clone handle. While the catalog does not answer, what was known stays.
#[derive(Clone)]
pub struct Keyring(Arc<Inner>);

struct Inner {
    known: RwLock<Arc<Known>>,
    /// The key for the salts of names while no token is known.
    salt_key: [u8; 32],
    /// Keys that no password has, for those names: their logins take as long as others.
    nobody: LoginKeys,
    reads: Attempts,
}

#[derive(Default)]
struct Known {
    by_hash: HashMap<Prefix, Vec<Arc<Token>>>,
    by_name: HashMap<String, Arc<Token>>,
    /// See [`salt_key`].
    salt_key: Option<[u8; 32]>,
}

struct Token {
    hash: [u8; 32],
    scram: LoginKeys,
    record: TokenRecord,
    principal: Arc<Principal>,
}

/// A login by SCRAM-SHA-256 under way, whether or not its name has a token.
pub struct ScramLogin {
    pub salt: Vec<u8>,
    pub iterations: u32,
    keys: LoginKeys,
    token: Option<Arc<Token>>,
}

impl Keyring {
    /// Creates a keyring without tokens.
    pub fn new() -> Result<Keyring> {
        let reads = Attempts::new("the tokens cannot be read from the catalog");
        Ok(Keyring(Arc::new(Inner {
            known: RwLock::default(),
            salt_key: random()?,
            nobody: LoginKeys::of_nobody(random()?, random()?),
            reads,
        })))
    }

    /// Creates a keyring with the catalog's tokens.
    pub async fn open(catalog: &Catalog) -> Result<Keyring> {
        let keyring = Keyring::new()?;
        keyring.set(catalog.tokens().await?);
        Ok(keyring)
    }

    /// Follows the catalog until `stop`.
    pub async fn watch(&self, catalog: &Catalog, stop: CancellationToken) {
        let mut seen = None;
        loop {
            let looked = self.refresh(catalog, &mut seen).await;
            self.0.reads.note(&looked);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Reads the tokens if the catalog has changed since `seen`.
    pub(crate) async fn refresh(&self, catalog: &Catalog, seen: &mut Option<Revision>) -> Result<()> {
        let revision = catalog.revision().await?;
        if *seen != Some(revision) {
            self.set(catalog.tokens().await?);
            *seen = Some(revision);
        }
        Ok(())
    }

    /// Replaces the known tokens. One that cannot be read is left out: nobody can log in with it.
    pub fn set(&self, records: Vec<TokenRecord>) {
        let mut known = Known { salt_key: salt_key(&records), ..Known::default() };
        for record in records.into_iter().filter(|record| record.revoked_at.is_none()) {
            let name = record.name.clone();
            match Token::read(record) {
                Ok(token) => known.add(Arc::new(token)),
                Err(error) => warn!(%error, token = name, "a token cannot be read: it is refused"),
            }
        }
        *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// Returns whose token it is.
    ///
    /// Errors: `Unauthenticated`, which does not say whether the token was ever there.
    pub fn principal(&self, token: &str, now: Micros) -> Result<Arc<Principal>> {
        let hash = hash(token);
        let known = self.known();
        let alike = known.by_hash.get(&prefix(&hash)).map_or(&[][..], Vec::as_slice);
        let found = alike.iter().find(|token| bool::from(token.hash.ct_eq(&hash)));
        match found.filter(|token| token.record.is_valid(now)) {
            Some(token) => Ok(token.principal.clone()),
            None => Err(Error::unauthenticated("the token is unknown, revoked or expired: see `basestream token list`")),
        }
    }

    /// Begins a login of a user of PostgreSQL: the user is the token's name, the password the token.
    pub fn scram(&self, name: &str, now: Micros) -> ScramLogin {
        let known = self.known();
        // Both are made for every name: how long it takes does not tell which was needed.
        let made_up = scram::mac(&known.salt_key.unwrap_or(self.0.salt_key), name.as_bytes())[..scram::SALT_BYTES].to_vec();
        let token = known.by_name.get(name).filter(|token| token.record.is_valid(now)).cloned();
        let keys = token.as_ref().map_or(&self.0.nobody, |token| &token.scram).clone();
        let salt = if token.is_some() { keys.salt.clone() } else { made_up };
        ScramLogin { salt, iterations: keys.iterations, keys, token }
    }

    /// Whether a principal that began with this token may go on: long connections ask from time to time.
    pub fn is_still_valid(&self, principal: &Arc<Principal>, now: Micros) -> bool {
        let known = self.known();
        known.by_name.get(&*principal.name).is_some_and(|token| token.principal == *principal && token.record.is_valid(now))
    }

    /// Whether there is a token that may be used at `now`.
    pub fn has_any(&self, now: Micros) -> bool {
        self.known().by_name.values().any(|token| token.record.is_valid(now))
    }

    pub fn outage(&self) -> Option<Outage> {
        self.0.reads.outage()
    }

    fn known(&self) -> Arc<Known> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ScramLogin {
    /// Checks the client's proof over the exchange's AuthMessage (RFC 5802). Returns the server's signature, and who it
    /// is.
    ///
    /// Errors: `Unauthenticated`, the same for a wrong password and a name without a token.
    pub fn finish(&self, auth_message: &[u8], proof: &[u8]) -> Result<([u8; 32], Arc<Principal>)> {
        let signature = self.keys.signature(auth_message, proof);
        let signed = signature.zip(self.token.as_ref().map(|token| token.principal.clone()));
        signed.ok_or_else(|| Error::unauthenticated("the user is not the name of a token, or the password is not that token"))
    }
}

impl Known {
    fn add(&mut self, token: Arc<Token>) {
        self.by_hash.entry(prefix(&token.hash)).or_default().push(token.clone());
        self.by_name.insert(token.record.name.clone(), token);
    }
}

impl Token {
    fn read(record: TokenRecord) -> Result<Token> {
        let hash = BASE64_STANDARD.decode(&record.hash).ok().and_then(|hash| hash.try_into().ok());
        let hash = hash.ok_or_else(|| Error::corrupt("the catalog holds a token whose hash cannot be read"))?;
        let principal = Arc::new(Principal::of_token(&record));
        Ok(Token { hash, scram: LoginKeys::read(&record.scram)?, record, principal })
    }
}

/// The key for the salts of names that have no token. They look like those of names that have one: always the same, and
/// in every process the same, so that two nodes, or one before and after a restart, do not tell them apart. The key is
/// made from what the catalog alone has, the hash of its first token, and lasts as long as the catalog keeps that.
fn salt_key(records: &[TokenRecord]) -> Option<[u8; 32]> {
    let first = records.iter().min_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)))?;
    Some(scram::mac(first.hash.as_bytes(), b"salts of names without a token"))
}

fn prefix(hash: &[u8; 32]) -> Prefix {
    std::array::from_fn(|i| hash[i])
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("tokens", &self.known().by_name.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
