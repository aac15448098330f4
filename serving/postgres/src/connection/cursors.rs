//! SQL cursors: portals that DECLARE makes, FETCH reads and CLOSE ends. They share their names with the protocol's.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use pgwire::messages::PgWireBackendMessage;

use super::answering::{self, RowOutput};
use super::prepared::{self, Portal, PortalProgress, Prepared};
use super::{Answered, Connection, RunningStatement};
use crate::columns::{WireType, row_description};
use crate::problem::{NOT_SUPPORTED, SqlProblem, UNDEFINED_PORTAL};
use crate::rows::{BINARY, RowFormat};
use crate::statement::{Declare, Fetch, Statement};

/// What asks for the rows of a cursor.
pub(super) enum FetchedBy {
    /// A text of the simple protocol: they are described first, and written as DECLARE says.
    Text,
    /// A portal, which the client describes by itself.
    Portal {
        /// As they were asked for.
        formats: Vec<i16>,
        /// The columns that were described.
        shown: Option<Vec<WireType>>,
    },
}

impl Connection {
    /// Plans the query of a cursor, and keeps it with the values of its parameters. `text` is the whole text of the
    /// DECLARE, and `types` are those that the client says of the parameters.
    pub(super) async fn declare(&mut self, declare: &Declare, text: &str, types: Vec<u32>, params: Vec<ScalarValue>) -> Answered {
        if !self.session.in_transaction() {
            return Err(SqlProblem::new("25P01", "DECLARE CURSOR can only be used in transaction blocks").into());
        }
        let planned = Prepared { sql: text.into(), statement: Some(declare.query.clone()), types, shown: None };
        let described = self.described_query(&planned).await?;
        if described.params.len() > params.len() {
            return Err(SqlProblem::new("42P02", format!("there is no parameter ${}", params.len() + 1)).into());
        }
        // Of the text, no more is kept than the query.
        let query = Statement { start: 0, ..Statement::clone(&declare.query) };
        let prepared = Prepared { sql: query.sql.as_str().into(), statement: Some(Arc::new(query)), ..planned };
        let formats = if declare.is_binary { vec![BINARY] } else { Vec::new() };
        let text_bytes = prepared.sql.len();
        self.keep_portal(declare.cursor.clone(), Portal { prepared, text_bytes, params, formats, progress: PortalProgress::NotBegun })?;
        self.complete("DECLARE CURSOR")
    }

    /// Sends the next rows of a cursor.
    pub(super) async fn fetch(&mut self, fetch: &Fetch, by: FetchedBy) -> Answered {
        // Taken out while it runs: one that fails is not run again.
        let cursor = self.portals.remove(&fetch.cursor).filter(Portal::is_query);
        let mut cursor = cursor.ok_or_else(|| no_cursor(&fetch.cursor))?;
        let limits = self.limits();
        let begins = matches!(cursor.progress, PortalProgress::NotBegun);
        if let Some(query) = cursor.prepared.statement.clone().filter(|_| begins) {
            // The text that is answered is that of FETCH: an error of the query has no place there.
            let query = Statement { start: 0, ..Statement::clone(&query) };
            let running = RunningStatement { statement: &query, text: "" };
            let answer = self.begin(&running, std::mem::take(&mut cursor.params), &limits).await?;
            cursor.progress.begin(answer);
        }
        let of_answer = match &cursor.progress {
            PortalProgress::Begun(answer) => Some((answer.schema.clone(), answer.types.clone())),
            _ => None,
        };
        let (schema, types) = match of_answer {
            Some(known) => known,
            None => {
                let described = self.described_query(&cursor.prepared).await?;
                (described.schema, described.types)
            }
        };
        let formats = match by {
            FetchedBy::Text => {
                let formats = prepared::result_formats(&cursor.formats, types.len())?;
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&schema, &types, &formats)))?;
                formats
            }
            FetchedBy::Portal { shown: Some(shown), .. } if !prepared::are_alike(&shown, &types) => {
                return Err(SqlProblem::new(NOT_SUPPORTED, "cached plan must not change result type").into());
            }
            FetchedBy::Portal { formats, .. } => prepared::result_formats(&formats, types.len())?,
        };
        let mut rows = 0;
        if let PortalProgress::Begun(answer) = &mut cursor.progress {
            let format = RowFormat { types, formats, zone: self.session.zone() };
            let sent = answering::send(&mut self.socket, answer, &mut RowOutput::Rows(&format), fetch.rows, &limits).await?;
            rows = sent.rows;
            if sent.may_have_more {
                answer.turn().pause();
            } else {
                cursor.progress = PortalProgress::Ended;
            }
        }
        self.portals.insert(fetch.cursor.clone(), cursor);
        self.complete(&format!("FETCH {rows}"))
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

pub(super) fn no_cursor(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_PORTAL, format!("cursor \"{name}\" does not exist"))
}
