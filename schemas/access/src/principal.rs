//! Principals: who calls, and what they were granted.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use catalog::{Role, TokenRecord};
use types::tiles::Micros;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Principal {
    pub name: Arc<str>,
    /// Any one of them is enough.
    pub grants: Vec<Grant>,
    /// The hash of the token that it came with: another token of the same name is another principal.
    token: Option<Arc<str>>,
    /// When the credential expires, if it does.
    expires_at: Option<Micros>,
}

/// A role, and what it is limited to; `None` for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub only: Option<GrantScope>,
}

/// The views and streams that a grant is limited to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrantScope {
    pub views: BTreeSet<String>,
    pub streams: BTreeSet<String>,
}

/// A caller that renews its JWT is the same principal.
impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.grants, &self.token) == (&other.name, &other.grants, &other.token)
    }
}

impl Eq for Principal {}

impl Principal {
    /// Creates a principal without a token that could expire.
    pub fn new(name: &str, grants: Vec<Grant>) -> Self {
        Self { name: name.into(), grants, token: None, expires_at: None }
    }

    /// Whoever calls where no principal is required: it may do everything.
    pub fn anonymous() -> Arc<Principal> {
        static ANONYMOUS: LazyLock<Arc<Principal>> = LazyLock::new(|| Arc::new(Principal::admin("anonymous")));
        ANONYMOUS.clone()
    }

    /// One that may do everything.
    pub fn admin(name: &str) -> Principal {
        Principal::new(name, vec![Grant { role: Role::Admin, only: None }])
    }

    /// One that may do nothing: a caller of what is public, where a principal is required for all else.
    pub fn nobody() -> Arc<Principal> {
        static NOBODY: LazyLock<Arc<Principal>> = LazyLock::new(|| Arc::new(Principal::new("nobody", Vec::new())));
        NOBODY.clone()
    }

    pub(crate) fn of_token(token: &TokenRecord) -> Principal {
        let only = token
            .only
            .as_ref()
            .map(|only| GrantScope { views: only.views.iter().cloned().collect(), streams: only.streams.iter().cloned().collect() });
        let grants = vec![Grant { role: token.role, only }];
        Principal { token: Some(token.hash.as_str().into()), ..Principal::new(&token.name, grants) }
    }

    /// The same, with a credential that expires.
    pub(crate) fn until(self, expires_at: Option<Micros>) -> Principal {
        Principal { expires_at, ..self }
    }

    pub(crate) fn is_expired(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= expires_at)
    }

    /// Whether it came with a token of the catalog.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Its roles, for messages.
    pub fn roles(&self) -> String {
        let roles: BTreeSet<&str> = self.grants.iter().map(|grant| grant.role.word()).collect();
        if roles.is_empty() { "none".to_owned() } else { Vec::from_iter(roles).join(", ") }
    }
}
