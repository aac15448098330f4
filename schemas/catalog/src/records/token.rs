//! Tokens: a name, a role, and what proves that a caller has the token. Nothing here is the token, or makes one.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::tiles::Micros;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Lookups and SELECT.
    Reader,
    /// Events into streams.
    Writer,
    /// Reads, and asks for runs.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Reader, Role::Writer, Role::Operator, Role::Admin];

    /// The word for it, in the catalog, on the command line and in claims of JWTs.
    pub fn word(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A token, as the catalog keeps it. The `Debug` text has neither hash nor keys.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub name: String,
    pub role: Role,
    /// `None` for a token that is not limited.
    pub only: Option<TokenLimits>,
    /// The SHA-256 of the token, base64.
    pub hash: String,
    pub scram: ScramKeys,
    pub created_at: Micros,
    /// The user who made it.
    pub created_by: String,
    pub expires_at: Option<Micros>,
    pub revoked_at: Option<Micros>,
}

/// What a token is limited to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLimits {
    pub views: Vec<String>,
    pub streams: Vec<String>,
}

/// What a server needs to check a password by SCRAM-SHA-256 (RFC 5802, RFC 7677), each part as base64. It neither is
/// the password nor lets anyone log in as a client.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    pub salt: String,
    pub iterations: u32,
    pub stored_key: String,
    pub server_key: String,
}

impl TokenRecord {
    /// Whether it may be used at `now`.
    pub fn is_valid(&self, now: Micros) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl fmt::Debug for TokenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRecord")
            .field("name", &self.name)
            .field("role", &self.role)
            .field("only", &self.only)
            .field("expires_at", &self.expires_at)
            .field("revoked_at", &self.revoked_at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramKeys").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}
