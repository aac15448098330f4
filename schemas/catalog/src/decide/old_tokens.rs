//! Decides which tokens are forgotten: those that ended long ago. Every process reads all others again after a commit.

use std::time::Duration;

use uuid::Uuid;

use crate::{Commit, Remove, TokenRecord};
use types::tiles::Micros;

/// How long a token is listed after it was revoked or has expired.
const LISTED_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// At most this many are forgotten at a time.
const MOST: usize = 1_000;

/// Returns the commit that forgets the tokens which ended long before `now`; `None` if there are none.
pub fn forget_tokens_commit(tokens: &[TokenRecord], id: Uuid, now: Micros) -> Option<Commit> {
    let before = now.saturating_sub(LISTED_FOR.as_micros() as Micros);
    let old = tokens.iter().filter(|token| ended_at(token).is_some_and(|at| at < before));
    let remove = |token: &TokenRecord| Remove::EndedToken { name: token.name.clone(), created_at: token.created_at };
    let remove: Vec<Remove> = old.take(MOST).map(remove).collect();
    (!remove.is_empty()).then(|| Commit { id, remove, ..Commit::default() })
}

fn ended_at(token: &TokenRecord) -> Option<Micros> {
    token.revoked_at.into_iter().chain(token.expires_at).min()
}
