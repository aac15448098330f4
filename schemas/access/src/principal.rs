//! Who calls, and what it was granted.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use catalog::{Role, TokenRecord};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub name: Arc<str>,
    /// Any one of them is enough.
    pub grants: Vec<Grant>,
    /// The hash of the token that it came with: another token of the same name is another principal.
    token: Option<Arc<str>>,
}

/// A role, and what it is limited to; `None` for everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    pub only: Option<Only>,
}

/// The views and streams that a grant is limited to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Only {
    pub views: BTreeSet<String>,
    pub streams: BTreeSet<String>,
}

impl Principal {
    pub fn new(name: &str, grants: Vec<Grant>) -> Self {
        Self { name: name.into(), grants, token: None }
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
            .map(|(views, streams)| Only { views: views.iter().cloned().collect(), streams: streams.iter().cloned().collect() });
        let grants = vec![Grant { role: token.role, only }];
        Principal { token: Some(token.hash.as_str().into()), ..Principal::new(&token.name, grants) }
    }

    /// Its roles, for messages.
    pub fn roles(&self) -> String {
        let roles: BTreeSet<&str> = self.grants.iter().map(|grant| grant.role.word()).collect();
        if roles.is_empty() { "none".to_owned() } else { Vec::from_iter(roles).join(", ") }
    }
}
