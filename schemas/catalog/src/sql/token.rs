//! Table `token`: who may do what.

use super::session::{Row, Session, values};
use crate::{Role, ScramKeys, TokenLimits, TokenRecord};
use types::tiles::Micros;
use types::{Error, Result};

/// The words of roles, as they are read back.
fn roles() -> [(Role, &'static str); 4] {
    Role::ALL.map(|role| (role, role.word()))
}

pub(super) async fn all(session: &mut Session) -> Result<Vec<TokenRecord>> {
    let sql = "SELECT name, role, views, streams, hash, scram_salt, scram_iterations, scram_stored_key, scram_server_key, created_at,
        created_by, expires_at, revoked_at FROM token ORDER BY name";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

/// Returns whether the token of this name may be used but for its end; `None` if there is none.
pub(super) async fn is_in_use(session: &mut Session, name: &str) -> Result<Option<bool>> {
    let row = session.row("SELECT revoked_at FROM token WHERE name = $1", values![name]).await?;
    row.map(|row| Ok(row.integer_or_null("revoked_at")?.is_none())).transpose()
}

/// Stores a token. It replaces a revoked one of the same name.
pub(super) async fn put(session: &mut Session, token: &TokenRecord) -> Result<()> {
    let sql = "INSERT INTO token (name, role, views, streams, hash, scram_salt, scram_iterations, scram_stored_key, scram_server_key,
            created_at, created_by, expires_at, revoked_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        ON CONFLICT (name) DO UPDATE SET role = excluded.role, views = excluded.views, streams = excluded.streams, hash = excluded.hash,
            scram_salt = excluded.scram_salt, scram_iterations = excluded.scram_iterations,
            scram_stored_key = excluded.scram_stored_key, scram_server_key = excluded.scram_server_key,
            created_at = excluded.created_at, created_by = excluded.created_by, expires_at = excluded.expires_at,
            revoked_at = excluded.revoked_at";
    let list = |names: &[String]| serde_json::to_string(names).map_err(Error::from);
    let views = token.only.as_ref().map(|only| list(&only.views)).transpose()?;
    let streams = token.only.as_ref().map(|only| list(&only.streams)).transpose()?;
    let values = values![
        token.name.as_str(),
        token.role.word(),
        views.as_deref(),
        streams.as_deref(),
        token.hash.as_str(),
        token.scram.salt.as_str(),
        token.scram.iterations,
        token.scram.stored_key.as_str(),
        token.scram.server_key.as_str(),
        token.created_at,
        token.created_by.as_str(),
        token.expires_at,
        token.revoked_at,
    ];
    session.execute(sql, values).await.map(drop)
}

pub(super) async fn revoke(session: &mut Session, name: &str, at: Micros) -> Result<()> {
    let sql = "UPDATE token SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL";
    session.execute(sql, values![name, at]).await.map(drop)
}

/// Deletes a token, unless it is not the one that was made then.
pub(super) async fn remove(session: &mut Session, name: &str, created_at: Micros) -> Result<()> {
    session.execute("DELETE FROM token WHERE name = $1 AND created_at = $2", values![name, created_at]).await.map(drop)
}

fn record(row: &Row) -> Result<TokenRecord> {
    Ok(TokenRecord {
        name: row.text("name")?,
        role: row.word("role", &roles())?,
        only: only(row)?,
        hash: row.text("hash")?,
        scram: ScramKeys {
            salt: row.text("scram_salt")?,
            iterations: row.number("scram_iterations")?,
            stored_key: row.text("scram_stored_key")?,
            server_key: row.text("scram_server_key")?,
        },
        created_at: row.integer("created_at")?,
        created_by: row.text("created_by")?,
        expires_at: row.integer_or_null("expires_at")?,
        revoked_at: row.integer_or_null("revoked_at")?,
    })
}

/// Reads the limits. One list without the other would be a limit to nothing of its kind.
fn only(row: &Row) -> Result<Option<TokenLimits>> {
    let list = |text: Option<String>| text.map_or(Ok(Vec::new()), |text| serde_json::from_str(&text).map_err(Error::from));
    let (views, streams) = (row.text_or_null("views")?, row.text_or_null("streams")?);
    if views.is_none() && streams.is_none() {
        return Ok(None);
    }
    Ok(Some(TokenLimits { views: list(views)?, streams: list(streams)? }))
}
