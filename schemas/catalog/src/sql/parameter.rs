//! Table `parameter_value`: the values that parameters were set to.

use super::Catalog;
use super::session::{Row, Session, values};
use crate::ParameterRecord;
use types::{Error, Result};

/// How many values of each parameter are kept at least. The newest is in effect; those before are history.
const HISTORY: i64 = 1_000;

impl Catalog {
    /// Returns the values of a parameter, the newest first; up to `limit`.
    pub async fn parameter_values(&self, parameter: &str, limit: u32) -> Result<Vec<ParameterRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = values_of(&mut session, parameter, limit).await;
        session.finish(found).await
    }
}

/// Returns the newest value of each parameter, ordered by name. What it costs does not depend on how many values came
/// before.
pub(super) async fn newest(session: &mut Session) -> Result<Vec<ParameterRecord>> {
    let sql = "SELECT v.parameter, v.version, v.value_type, v.value, v.set_at, v.set_by
        FROM (SELECT DISTINCT name FROM definition WHERE kind = 'parameter') d
        JOIN parameter_value v ON v.parameter = d.name
            AND v.version = (SELECT max(n.version) FROM parameter_value n WHERE n.parameter = d.name)
        ORDER BY v.parameter";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

/// Adds a value, and forgets those long before it. Errors: `Conflict` if its version does not follow the newest one, or
/// if the parameter is not live.
pub(super) async fn add(session: &mut Session, added: &ParameterRecord) -> Result<()> {
    let ParameterRecord { parameter, version, value_type, value, set_at, set_by } = added;
    if !is_live(session, parameter).await? {
        return Err(Error::conflict("the parameter is not defined any more").with("parameter", parameter));
    }
    let newest = newest_version(session, parameter).await?;
    if newest + 1 != i64::from(*version) {
        return Err(Error::conflict("the parameter was set meanwhile")
            .with("parameter", parameter)
            .with("expected version", i64::from(*version) - 1)
            .with("found version", newest));
    }
    let sql = "INSERT INTO parameter_value (parameter, version, value_type, value, set_at, set_by) VALUES ($1, $2, $3, $4, $5, $6)";
    let of_value = values![&**parameter, *version, value_type.as_str(), value.as_str(), *set_at, set_by.as_str()];
    session.execute(sql, of_value).await?;
    let sql = "DELETE FROM parameter_value WHERE parameter = $1 AND version <= $2";
    session.execute(sql, values![&**parameter, i64::from(*version) - HISTORY]).await.map(drop)
}

/// Returns the version of the value that a parameter has; `None` if it is not live.
pub(super) async fn version_in_effect(session: &mut Session, parameter: &str) -> Result<Option<u32>> {
    match is_live(session, parameter).await? {
        true => Ok(u32::try_from(newest_version(session, parameter).await?).ok().filter(|version| *version > 0)),
        false => Ok(None),
    }
}

async fn is_live(session: &mut Session, parameter: &str) -> Result<bool> {
    let sql = "SELECT 1 AS found FROM definition WHERE kind = 'parameter' AND name = $1 AND status = 'active'";
    Ok(session.row(sql, values![parameter]).await?.is_some())
}

/// 0 before the first one.
async fn newest_version(session: &mut Session, parameter: &str) -> Result<i64> {
    let sql = "SELECT coalesce(max(version), 0) AS version FROM parameter_value WHERE parameter = $1";
    session.row(sql, values![parameter]).await?.map_or(Ok(0), |row| row.integer("version"))
}

async fn values_of(session: &mut Session, parameter: &str, limit: u32) -> Result<Vec<ParameterRecord>> {
    let sql = "SELECT parameter, version, value_type, value, set_at, set_by FROM parameter_value
        WHERE parameter = $1 ORDER BY version DESC LIMIT $2";
    session.rows(sql, values![parameter, limit]).await?.iter().map(record).collect()
}

fn record(row: &Row) -> Result<ParameterRecord> {
    Ok(ParameterRecord {
        parameter: row.text("parameter")?.into(),
        version: row.number("version")?,
        value_type: row.text("value_type")?,
        value: row.text("value")?,
        set_at: row.integer("set_at")?,
        set_by: row.text("set_by")?,
    })
}
