//! Tokens: created, listed, revoked. What they allow is decided in the crate `access`.

use access::{NewToken, local_user, new_token};
use catalog::{Add, Catalog, CatalogState, Commit, DefinitionKind, Expect, Remove, Role, TokenRecord};
use definitions::durations::parse_duration;
use engine::events::format_timestamp;
use serde::Serialize;
use types::tiles::Micros;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

/// What a token is asked to allow.
#[derive(Debug, Clone)]
pub struct AskedToken {
    pub name: String,
    pub role: Role,
    /// The views and streams that it is limited to; both empty: not limited.
    pub views: Vec<String>,
    pub streams: Vec<String>,
    /// For how long it may be used, such as `90d`; without an end if `None`.
    pub expires: Option<String>,
}

/// A token that was just made: the only place that has its text.
#[derive(Serialize)]
pub struct CreatedToken {
    pub token: String,
    #[serde(flatten)]
    pub shown: ShownToken,
}

/// A token, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownToken {
    pub name: String,
    pub role: Role,
    /// Both `null` for a token that is not limited.
    pub views: Option<Vec<String>>,
    pub streams: Option<Vec<String>>,
    /// `valid`, `expired` or `revoked`.
    pub state: &'static str,
    pub created_at: String,
    pub created_by: String,
    pub expires_at: Option<String>,
    pub revoked_at: Option<String>,
}

/// Makes a token and commits it. Every process knows it within a second.
///
/// Errors: `Input` for a name, limits or a duration that are none; `Conflict` if the name has a token.
pub async fn create(catalog: &Catalog, asked: AskedToken, now: Micros) -> Result<CreatedToken> {
    let AskedToken { name, role, views, streams, expires } = asked;
    let expires_at = expires.as_deref().map(|text| end(text, now)).transpose()?;
    let is_writer_of_views = role == Role::Writer && !views.is_empty();
    let created_by = local_user().to_owned();
    let new = NewToken { name, role, views: views.clone(), streams: streams.clone(), created_by, expires_at };
    let (token, record) = new_token(new, now).map_err(|error| match is_writer_of_views {
        true => error.with("help", "`--streams` limits a writer: it appends to those alone"),
        false => error,
    })?;
    let state = catalog.state().await?;
    check_known(&state, DefinitionKind::View, &views)?;
    check_known(&state, DefinitionKind::Stream, &streams)?;
    let shown = shown(&record, now);
    let expect = vec![Expect::TokenFree { name: record.name.clone() }];
    let commit = Commit { id: Uuid::now_v7(), expect, add: vec![Add::Token(record)], ..Commit::default() };
    catalog.commit_with_retry(commit).await.map_err(|error| match error.kind() {
        ErrorKind::Conflict => error.with("help", "take another name, or `basestream token revoke` it first"),
        _ => error,
    })?;
    Ok(CreatedToken { token, shown })
}

/// Returns all tokens, ordered by name.
pub async fn list(catalog: &Catalog, now: Micros) -> Result<Vec<ShownToken>> {
    Ok(catalog.tokens().await?.iter().map(|record| shown(record, now)).collect())
}

/// Revokes a token. Every process refuses it within a second.
///
/// Errors: `NotFound` with the tokens there are, `Conflict` if it is revoked already.
pub async fn revoke(catalog: &Catalog, name: &str, now: Micros) -> Result<()> {
    let expect = vec![Expect::TokenInUse { name: name.to_owned() }];
    let remove = vec![Remove::Token { name: name.to_owned(), at: now }];
    let commit = Commit { id: Uuid::now_v7(), expect, remove, ..Commit::default() };
    match catalog.commit_with_retry(commit).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let tokens = catalog.tokens().await?;
            let known: Vec<&str> = tokens.iter().filter(|token| token.revoked_at.is_none()).map(|token| &*token.name).collect();
            let expected = if known.is_empty() { "a token: there is none".to_owned() } else { format!("one of {}", known.join(", ")) };
            Err(error.with("expected", expected))
        }
        outcome => outcome.map(drop),
    }
}

/// The token that commands send to a node they ask by its URL. Not an option: others would see it in the list of
/// processes.
pub(crate) fn from_environment() -> Option<String> {
    std::env::var("BASESTREAM_TOKEN").ok().filter(|token| !token.is_empty())
}

/// A token limited to a name that no definition has would allow nothing.
fn check_known(state: &CatalogState, kind: DefinitionKind, names: &[String]) -> Result<()> {
    let Some(unknown) = names.iter().find(|name| state.served_or_building(kind, name).is_none()) else { return Ok(()) };
    let what = if kind == DefinitionKind::View { "view" } else { "stream" };
    let known: Vec<&str> = state.live(kind).map(|record| &*record.name).collect();
    let expected = if known.is_empty() { "`basestream apply` first".to_owned() } else { format!("one of {}", known.join(", ")) };
    Err(Error::input(format!("there is no {what} \"{unknown}\" in the catalog")).with("expected", expected))
}

fn end(text: &str, now: Micros) -> Result<Micros> {
    let lasting = parse_duration(text).map_err(|error| error.with("option", "--expires"))?;
    Ok(now.saturating_add(Micros::try_from(lasting.as_micros()).unwrap_or(Micros::MAX)))
}

fn shown(record: &TokenRecord, now: Micros) -> ShownToken {
    let state = match (record.revoked_at, record.is_valid(now)) {
        (Some(_), _) => "revoked",
        (None, false) => "expired",
        (None, true) => "valid",
    };
    ShownToken {
        name: record.name.clone(),
        role: record.role,
        views: record.only.as_ref().map(|only| only.views.clone()),
        streams: record.only.as_ref().map(|only| only.streams.clone()),
        state,
        created_at: format_timestamp(record.created_at),
        created_by: record.created_by.clone(),
        expires_at: record.expires_at.map(format_timestamp),
        revoked_at: record.revoked_at.map(format_timestamp),
    }
}

#[cfg(test)]
mod tests;
