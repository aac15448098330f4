//! Authenticates callers: turns a credential into a principal.

use std::fmt;
use std::sync::Arc;

use types::tiles::Clock;
use types::{Error, Result};

use crate::jwt::Issuer;
use crate::keyring::Keyring;
use crate::principal::Principal;
use crate::token::TOKEN_PREFIX;

/// Says who calls. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator {
    /// Whether a caller without a credential is refused.
    pub is_required: bool,
    pub keyring: Keyring,
    /// Whose JWTs are accepted beside the catalog's tokens.
    pub issuer: Option<Issuer>,
    pub clock: Clock,
}

impl Authenticator {
    /// Lets everyone do everything, and knows no token.
    pub fn open(clock: Clock) -> Result<Authenticator> {
        Ok(Authenticator { is_required: false, keyring: Keyring::new()?, issuer: None, clock })
    }

    /// Returns who sends this `Authorization` header. A credential is checked also where none is required.
    ///
    /// Errors: `Unauthenticated`; `Unavailable` while the keys of the issuer cannot be read.
    pub async fn caller(&self, authorization: Option<&[u8]>) -> Result<Arc<Principal>> {
        let Some(authorization) = authorization else {
            return match self.is_required {
                false => Ok(Principal::anonymous()),
                true => Err(Error::unauthenticated(
                    "no token was sent: expected the header `Authorization: Bearer <token>`; `basestream token create` makes one",
                )),
            };
        };
        match bearer(authorization) {
            Some(credential) => self.principal(credential).await,
            None => Err(Error::unauthenticated("the header Authorization is not understood: expected `Authorization: Bearer <token>`")),
        }
    }

    /// Whether a principal may go on with what it began: its token was not revoked since, its JWT has not expired. What
    /// lasts long asks from time to time.
    pub fn is_still_valid(&self, principal: &Arc<Principal>) -> bool {
        let now = (self.clock)();
        match principal.has_token() {
            true => self.keyring.is_still_valid(principal, now),
            false => !principal.is_expired(now),
        }
    }

    /// Errors: `Unauthenticated` for a principal that may not go on.
    pub fn check_still_valid(&self, principal: &Arc<Principal>) -> Result<()> {
        match self.is_still_valid(principal) {
            true => Ok(()),
            false => Err(Error::unauthenticated("the token was revoked, or has expired")),
        }
    }

    /// Returns whose credential it is: a token of the catalog, or a JWT of the issuer.
    pub async fn principal(&self, credential: &str) -> Result<Arc<Principal>> {
        let now = (self.clock)();
        match &self.issuer {
            Some(issuer) if !credential.starts_with(TOKEN_PREFIX) => issuer.principal(credential, now).await.map(Arc::new),
            _ => self.keyring.principal(credential, now),
        }
    }
}

fn bearer(authorization: &[u8]) -> Option<&str> {
    let (scheme, credential) = std::str::from_utf8(authorization).ok()?.split_once(' ')?;
    let credential = credential.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !credential.is_empty()).then_some(credential)
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("is_required", &self.is_required).field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_long_ends_with_the_credential() {
        let now = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let clock: Clock = Arc::new({
            let now = now.clone();
            move || now.load(std::sync::atomic::Ordering::Relaxed)
        });
        let authenticator = Authenticator::open(clock).unwrap();
        let of_issuer = Arc::new(Principal::new("oidc:ann", Vec::new()).until(Some(10)));
        assert!(authenticator.is_still_valid(&of_issuer) && authenticator.is_still_valid(&Principal::anonymous()));
        now.store(10, std::sync::atomic::Ordering::Relaxed);
        assert!(!authenticator.is_still_valid(&of_issuer));
        assert!(authenticator.is_still_valid(&Principal::anonymous()));
        assert_eq!(*of_issuer, Principal::new("oidc:ann", Vec::new()), "who renews a JWT stays who it is");
    }

    #[test]
    fn only_a_bearer_with_a_credential_is_one() {
        assert_eq!(bearer(b"Bearer abc"), Some("abc"));
        assert_eq!(bearer(b"bearer  abc "), Some("abc"));
        for wrong in [&b"Bearer"[..], b"Bearer ", b"Basic abc", b"abc", b"", b"Bearer \xff"] {
            assert_eq!(bearer(wrong), None, "{wrong:?}");
        }
    }
}
