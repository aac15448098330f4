//! Who may do what, the same for every protocol: who a caller is, and whether it may do what it asks.
//!
//! ```text
//! a credential --authenticator--> Principal --may--> yes | Forbidden
//!     token: keyring (the catalog's tokens)
//!     JWT:   jwt (keys of an OIDC issuer)
//!     SCRAM: keyring, scram
//! ```
//!
//! [`may`](may()) is pure; nothing else decides about rights. [`tls`] makes what a server encrypts with, and
//! [`may_listen`] says whether a process may listen at an address at all. [`next_connection`] accepts connections.

mod accepting;
mod audit;
mod authenticator;
mod jwt;
mod keyring;
mod listening;
mod may;
mod principal;
mod scram;
pub mod tls;
mod token;

pub use accepting::next_connection;
pub use audit::{audit, local_user};
pub use authenticator::Authenticator;
pub use jwt::{ISSUER_UNREAD, Issuer, IssuerSettings};
pub use keyring::{Keyring, ScramLogin};
pub use listening::may_listen;
pub use may::{Action, Object, allow, allow_some_view, may};
pub use principal::{Grant, GrantScope, Principal};
pub use scram::{proof_of_client, salted};
pub use token::{NewToken, TOKEN_PREFIX, hash, new_token};
