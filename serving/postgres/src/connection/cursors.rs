//! SQL cursors: portals that DECLARE makes, FETCH reads, MOVE advances and CLOSE ends. They share their names with the
//! protocol's.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::PortalSuspended;

use super::answering::{RowOutput, StatementLimits};
use super::prepared::{self, Portal, PortalProgress, Prepared};
use super::{Answered, Connection, RunningStatement};
use crate::columns::row_description;
use crate::problem::{NOT_SUPPORTED, SqlProblem, UNDEFINED_PORTAL};
use crate::query::{Description, StatementRows};
use crate::rows::{BINARY, RowFormat};
use crate::statement::{CursorStep, Declare, Fetch, Statement, only_forward};

/// What asks for the rows of a cursor.
pub(super) enum FetchedBy {
    /// A text of the simple protocol: they are described first, and written as DECLARE says.
    Text,
    /// A portal, which the client describes by itself.
    Portal {
        /// As they were asked for.
        formats: Vec<i16>,
        /// What was described to the client.
        shown: Option<Arc<Description>>,
        /// How many are sent at a time; 0: all.
        max_rows: usize,
        /// Where the cursor was after the rows that were sent before, if some were.
        resumed_at: Option<usize>,
    },
}

impl Connection {
    /// Plans the query of a cursor, and keeps it with the values of its parameters. `text` is the whole text of the
    /// DECLARE, and `types` are those that the client says of the parameters.
    pub(super) async fn declare(&mut self, declare: &Declare, text: &str, types: Arc<[u32]>, params: Vec<ScalarValue>) -> Answered {
        if !self.session.in_transaction() {
            return Err(SqlProblem::new("25P01", "DECLARE CURSOR can only be used in transaction blocks").into());
        }
        let search_path = self.session.search_path();
        let planned = Prepared { sql: text.into(), statement: Some(declare.query.clone()), types, search_path, shown: None };
        let described = self.described_query(&planned).await?;
        if described.params.len() > params.len() {
            return Err(SqlProblem::new("42P02", format!("there is no parameter ${}", params.len() + 1)).into());
        }
        // Only the query is kept of the text.
        let query = Statement { start: 0, ..Statement::clone(&declare.query) };
        let prepared = Prepared { sql: query.sql.as_str().into(), statement: Some(Arc::new(query)), ..planned };
        let formats = if declare.is_binary { vec![BINARY] } else { Vec::new() };
        let (number, progress) = (self.portals_made, PortalProgress::NotBegun);
        self.keep_portal(declare.cursor.clone(), Portal { number, prepared, params, formats, progress })?;
        self.complete("DECLARE CURSOR")
    }

    /// Sends the next rows of a cursor. Returns how far FETCH itself is: if the client asked for fewer rows at a time
    /// than it has, the client may ask for the rest.
    pub(super) async fn fetch(&mut self, fetch: &Fetch, by: FetchedBy) -> Answered<PortalProgress> {
        let limits = self.limits();
        let mut cursor = self.begun_cursor(&fetch.cursor, &limits).await?;
        let of_answer = match &cursor.progress {
            PortalProgress::Begun(answer) => Some((answer.schema.clone(), answer.types.clone())),
            _ => None,
        };
        let (schema, types) = match of_answer {
            Some(known) => known,
            None => {
                let described = self.described_query(&cursor.prepared).await?;
                (described.schema.clone(), described.types.clone())
            }
        };
        let (formats, max_rows, resumed_at) = match by {
            FetchedBy::Text => {
                let formats = prepared::result_formats(&cursor.formats, types.len())?;
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&schema, &types, &formats)))?;
                (formats, 0, None)
            }
            FetchedBy::Portal { shown: Some(shown), .. } if !prepared::are_alike(&shown.types, &types) => {
                return Err(SqlProblem::new(NOT_SUPPORTED, "cached plan must not change result type").into());
            }
            FetchedBy::Portal { formats, max_rows, resumed_at, .. } => {
                (prepared::result_formats(&formats, types.len())?, max_rows, resumed_at)
            }
        };
        let (mut rows, mut suspended_at) = (0, None);
        match &mut cursor.progress {
            PortalProgress::Begun(answer) => {
                let wanted = match resumed_at {
                    None => self.go_to(answer, fetch.step, &limits).await?,
                    Some(taken) if taken == answer.taken() => answer.promised,
                    Some(_) => return Err(has_moved(&fetch.cursor).into()),
                };
                let at_once = if max_rows == 0 { wanted } else { wanted.min(max_rows) };
                let format = RowFormat { types, formats, zone: self.session.zone() };
                let sent = self.send_rows(answer, &mut RowOutput::Rows(&format), at_once, &limits).await?;
                rows = sent.rows;
                answer.promised = wanted - at_once;
                if !sent.may_have_more {
                    cursor.progress = PortalProgress::Ended { taken: answer.taken() };
                } else {
                    answer.turn().pause();
                    suspended_at = (answer.promised > 0).then(|| answer.taken());
                }
            }
            _ if resumed_at.is_some() => return Err(has_moved(&fetch.cursor).into()),
            PortalProgress::Ended { taken } => check_forward(fetch.step, *taken)?,
            _ => {}
        }
        self.portals.insert(fetch.cursor.clone(), cursor);
        if let Some(taken) = suspended_at {
            self.socket.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()))?;
            return Ok(PortalProgress::Fetching { taken });
        }
        self.complete(&format!("FETCH {rows}"))?;
        Ok(PortalProgress::Ended { taken: rows as usize })
    }

    /// Passes over the next rows of a cursor.
    pub(super) async fn move_cursor(&mut self, passed: &Fetch) -> Answered {
        let limits = self.limits();
        let mut cursor = self.begun_cursor(&passed.cursor, &limits).await?;
        let mut rows = 0;
        match &mut cursor.progress {
            PortalProgress::Begun(answer) => {
                let wanted = self.go_to(answer, passed.step, &limits).await?;
                rows = self.pass(answer, wanted, &limits).await?;
                if rows < wanted as u64 {
                    cursor.progress = PortalProgress::Ended { taken: answer.taken() };
                } else {
                    answer.turn().pause();
                }
            }
            PortalProgress::Ended { taken } => check_forward(passed.step, *taken)?,
            _ => {}
        }
        self.portals.insert(passed.cursor.clone(), cursor);
        self.complete(&format!("MOVE {rows}"))
    }

    /// Takes out a cursor whose query has begun: one that fails while it runs is not run again.
    async fn begun_cursor(&mut self, name: &str, limits: &StatementLimits) -> Answered<Portal> {
        let cursor = self.portals.remove(name).filter(Portal::is_query);
        let mut cursor = cursor.ok_or_else(|| no_cursor(name))?;
        let begins = matches!(cursor.progress, PortalProgress::NotBegun);
        if let Some(query) = cursor.prepared.statement.clone().filter(|_| begins) {
            // The text that is answered is that of FETCH or MOVE: an error of the query has no place there.
            let query = Statement { start: 0, ..Statement::clone(&query) };
            let running = RunningStatement { statement: &query, text: "", search_path: cursor.prepared.search_path };
            let answer = self.begin(&running, std::mem::take(&mut cursor.params), limits).await?;
            cursor.progress.begin(answer);
        }
        Ok(cursor)
    }

    /// Goes to the first row of a step. Returns how many rows the step has from there.
    async fn go_to(&mut self, answer: &mut StatementRows, step: CursorStep, limits: &StatementLimits) -> Answered<usize> {
        self.pass_promised(answer, limits).await?;
        check_forward(step, answer.taken())?;
        let (passed, rows) = match step {
            CursorStep::Next(rows) => (0, rows),
            CursorStep::All => (0, usize::MAX),
            CursorStep::Relative(row) => (row - 1, 1),
            CursorStep::Absolute(row) => (row - answer.taken() - 1, 1),
        };
        self.pass(answer, passed, limits).await?;
        Ok(rows)
    }

    /// The rest of a FETCH that was read in part comes before what is asked for next.
    pub(super) async fn pass_promised(&mut self, answer: &mut StatementRows, limits: &StatementLimits) -> Answered {
        let promised = std::mem::take(&mut answer.promised);
        self.pass(answer, promised, limits).await.map(|_| ())
    }

    /// Passes over rows. Returns how many there were.
    async fn pass(&mut self, answer: &mut StatementRows, rows: usize, limits: &StatementLimits) -> Answered<u64> {
        if rows == 0 {
            return Ok(0);
        }
        Ok(self.send_rows(answer, &mut RowOutput::Nothing, rows, limits).await?.rows)
    }

    /// Ends a cursor, or all without a name.
    pub(super) fn close_cursor(&mut self, cursor: Option<&str>) -> Answered<&'static str> {
        let Some(name) = cursor else {
            self.portals.clear();
            return Ok("CLOSE CURSOR ALL");
        };
        match self.portals.remove(name) {
            Some(_) => Ok("CLOSE CURSOR"),
            None => Err(no_cursor(name).into()),
        }
    }
}

/// Refuses a step to a row among those that were taken.
fn check_forward(step: CursorStep, taken: usize) -> Result<(), SqlProblem> {
    match step {
        CursorStep::Absolute(row) if row <= taken => Err(only_forward()),
        _ => Ok(()),
    }
}

pub(super) fn no_cursor(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_PORTAL, format!("cursor \"{name}\" does not exist"))
}

fn has_moved(name: &str) -> SqlProblem {
    SqlProblem::new("55000", format!("cursor \"{name}\" has moved: expected the rows of a FETCH to be read before the next one"))
}
