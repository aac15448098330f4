//! The extended protocol: statements are prepared, bound to parameters as portals, described, and run in parts.

use std::sync::Arc;

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{BindComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::EmptyQueryResponse;

use super::answering::RowOutput;
use super::asking::tag;
use super::cursors::{FetchedBy, no_cursor};
use super::prepared::{self, Portal, PortalProgress, Prepared};
use super::{Answered, Connection, RunningStatement};
use crate::columns::row_description;
use crate::problem::{CONFIGURATION_LIMIT, DUPLICATE_STATEMENT, NOT_SUPPORTED, SqlProblem, UNDEFINED_PORTAL, UNDEFINED_STATEMENT};
use crate::query::Description;
use crate::rows::RowFormat;
use crate::statement::{Command, Fetch, Statement, statements};

/// A client may keep this many prepared statements, and this many portals.
const MAX_KEPT: usize = 10_000;
/// Their names, texts and parameters may have this many bytes.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// One of fewer bytes is not counted: as many as may be kept have little more.
const SMALL_BYTES: usize = 4 << 10;

impl Connection {
    /// Keeps the text: it is planned when it is described, and again when it is run.
    pub(super) fn parse(&mut self, name: String, sql: String, types: Vec<u32>) -> Answered {
        let mut statements = statements(&sql)?;
        if statements.len() > 1 {
            return Err(SqlProblem::new("42601", "cannot insert multiple commands into a prepared statement").into());
        }
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(SqlProblem::new(DUPLICATE_STATEMENT, format!("prepared statement \"{name}\" already exists")).into());
        }
        if self.statements.len() >= MAX_KEPT {
            return Err(SqlProblem::new(
                CONFIGURATION_LIMIT,
                format!("more than {MAX_KEPT} prepared statements: close those that are not used"),
            )
            .into());
        }
        let prepared = Prepared::new(sql, statements.pop(), types);
        let bytes = name.len() + prepared.kept_bytes();
        let kept = self.statements.iter().map(|(name, prepared)| name.len() + prepared.kept_bytes());
        if bytes > SMALL_BYTES && kept.sum::<usize>() + bytes > MAX_KEPT_BYTES {
            return Err(too_much("prepared statements").into());
        }
        self.statements.insert(name, prepared);
        Ok(self.socket.put(PgWireBackendMessage::ParseComplete(ParseComplete::new()))?)
    }

    pub(super) async fn bind(
        &mut self,
        name: String,
        statement: &str,
        (formats, values): (&[i16], &[Option<Bytes>]),
        result_formats: Vec<i16>,
    ) -> Answered {
        let prepared = self.prepared(statement)?;
        let has_params = matches!(prepared.command(), Some(Command::Rows | Command::Declare(_)));
        let described = match prepared.types_are_known(values.len()) || !has_params {
            true => None,
            false => Some(self.described(&prepared).await?),
        };
        let types = described.as_ref().map_or(&*prepared.types, |described| described.params.as_slice());
        let params = prepared::values(types, formats, values, self.session.zone())?;
        let (number, progress) = (self.portals_made, PortalProgress::NotBegun);
        self.keep_portal(name, Portal { number, prepared, params, formats: result_formats, progress })?;
        Ok(self.socket.put(PgWireBackendMessage::BindComplete(BindComplete::new()))?)
    }

    /// A prepared statement as the session reads it now.
    fn prepared(&self, name: &str) -> Answered<Prepared> {
        let prepared = self.statements.get(name).ok_or_else(|| no_statement(name))?;
        Ok(Prepared { search_path: self.session.search_path(), ..prepared.clone() })
    }

    pub(super) fn keep_portal(&mut self, name: String, portal: Portal) -> Answered {
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(SqlProblem::new("42P03", format!("cursor \"{name}\" already exists")).into());
        }
        if self.portals.len() >= MAX_KEPT {
            return Err(SqlProblem::new(CONFIGURATION_LIMIT, format!("more than {MAX_KEPT} portals: close those that are not used")).into());
        }
        let bytes = name.len() + portal.kept_bytes();
        let kept = self.portals.iter().map(|(name, portal)| name.len() + portal.kept_bytes());
        if bytes > SMALL_BYTES && kept.sum::<usize>() + bytes > MAX_KEPT_BYTES {
            return Err(too_much("portals and cursors").into());
        }
        self.portals.insert(name, portal);
        self.portals_made += 1;
        Ok(())
    }

    /// What a statement is, as of now.
    async fn described(&mut self, prepared: &Prepared) -> Answered<Arc<Description>> {
        let Some(command) = prepared.command() else { return Ok(Arc::new(prepared::nothing())) };
        let described = match command {
            Command::Rows => return self.described_query(prepared).await,
            Command::Show { name } => prepared::texts(&[name]),
            Command::ShowAll => prepared::texts(&["name", "setting"]),
            Command::Declare(declare) => {
                let query = Prepared { statement: Some(declare.query.clone()), ..prepared.clone() };
                let params = self.described_query(&query).await?.params.clone();
                Description { params, ..prepared::nothing() }
            }
            Command::Fetch(fetch) => {
                self.refuse_if_failed(command)?;
                let cursor = self.portals.get(&fetch.cursor).filter(|portal| portal.is_query());
                let cursor = cursor.ok_or_else(|| no_cursor(&fetch.cursor))?.prepared.clone();
                let described = self.described_query(&cursor).await?;
                Description { params: Vec::new(), ..Description::clone(&described) }
            }
            _ => prepared::nothing(),
        };
        Ok(Arc::new(described))
    }

    /// What a query is, as of now. A text that was described for its search path since the catalog changed last is not
    /// planned again.
    pub(super) async fn described_query(&mut self, prepared: &Prepared) -> Answered<Arc<Description>> {
        let Some(statement) = &prepared.statement else { return Ok(Arc::new(prepared::nothing())) };
        self.refuse_if_failed(&statement.command)?;
        let node = self.query_engine.node.clone();
        // A transaction describes what it read first; without one, what is loaded is enough to find what is kept.
        let loaded = node.loaded().filter(|_| !self.session.in_transaction());
        let search_path = prepared.search_path;
        let known = |revision| self.descriptions.get(&statement.sql, &prepared.types, (revision, search_path));
        if let Some(known) = loaded.and_then(|loaded| known(loaded.state.revision)) {
            return Ok(known);
        }
        let read_view = self.session.read_view(|| node.read_view())?;
        let described_for = (read_view.loaded.state.revision, search_path);
        if let Some(known) = self.descriptions.get(&statement.sql, &prepared.types, described_for) {
            return Ok(known);
        }
        let limits = self.limits();
        let describing = self.query_engine.describe(&statement.sql, &prepared.types, read_view, (&self.session, search_path));
        let described = limits.first(describing, &mut self.socket).await?;
        let described = Arc::new(described.map_err(|problem| problem.within(&prepared.sql, statement.start))?);
        self.descriptions.keep(&statement.sql, &prepared.types, described_for, described.clone());
        Ok(described)
    }

    pub(super) async fn describe_statement(&mut self, name: &str) -> Answered {
        let prepared = self.prepared(name)?;
        let described = self.described(&prepared).await?;
        let parameters = ParameterDescription::new(described.params.clone());
        self.socket.put(PgWireBackendMessage::ParameterDescription(parameters))?;
        self.put_columns(&described, &[])?;
        if let Some(kept) = self.statements.get_mut(name) {
            kept.shown = Some(described);
        }
        Ok(())
    }

    pub(super) async fn describe_portal(&mut self, name: &str) -> Answered {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        let (prepared, formats) = (portal.prepared.clone(), portal.formats.clone());
        let described = self.described(&prepared).await?;
        let formats = prepared::result_formats(&formats, described.types.len())?;
        self.put_columns(&described, &formats)?;
        if let Some(portal) = self.portals.get_mut(name) {
            portal.prepared.shown = Some(described);
        }
        Ok(())
    }

    fn put_columns(&mut self, described: &Description, formats: &[i16]) -> Answered {
        let message = match described.types.is_empty() {
            true => PgWireBackendMessage::NoData(NoData::new()),
            false => PgWireBackendMessage::RowDescription(row_description(&described.schema, &described.types, formats)),
        };
        Ok(self.socket.put(message)?)
    }

    /// Runs a portal, or goes on with one that was run before. `max_rows` is how many rows are sent at a time; 0: all.
    pub(super) async fn execute(&mut self, name: &str, max_rows: i32) -> Answered {
        let max_rows = max_rows.max(0) as usize;
        // Taken out while it runs: one that fails is not run again.
        let portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let Some(statement) = portal.prepared.statement.clone() else {
            self.portals.insert(name.to_owned(), portal);
            return Ok(self.socket.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?);
        };
        self.refuse_if_failed(&statement.command)?;
        let portal = match &statement.command {
            Command::Rows | Command::Show { .. } | Command::ShowAll => self.execute_rows(&statement, portal, max_rows).await?,
            Command::Fetch(fetch) => self.execute_fetch(fetch, portal, max_rows).await?,
            Command::Move(step) => return self.move_cursor(step).await,
            Command::Declare(declare) => {
                return self.declare(declare, &portal.prepared.sql, portal.prepared.types.clone(), portal.params).await;
            }
            Command::Copy => {
                let (text, search_path) = (&portal.prepared.sql, portal.prepared.search_path);
                let limits = self.limits();
                return self.copy_out(&RunningStatement { statement: &statement, text, search_path }, &limits).await;
            }
            command => return self.change(command),
        };
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    /// Sends the next rows of a query or of SHOW. Returns the portal with its progress.
    async fn execute_rows(&mut self, statement: &Statement, mut portal: Portal, max_rows: usize) -> Answered<Portal> {
        let limits = self.limits();
        let answer = match &mut portal.progress {
            PortalProgress::Ended { .. } => {
                self.complete(&tag(statement, 0))?;
                return Ok(portal);
            }
            PortalProgress::Begun(answer) => {
                self.pass_promised(answer, &limits).await?;
                answer
            }
            progress => {
                let begun = match statement.command {
                    Command::Rows => {
                        let (text, search_path) = (&portal.prepared.sql, portal.prepared.search_path);
                        let running = RunningStatement { statement, text, search_path };
                        self.begin(&running, std::mem::take(&mut portal.params), &limits).await?
                    }
                    _ => self.shown(&statement.command)?,
                };
                if portal.prepared.shown.as_ref().is_some_and(|shown| !prepared::are_alike(&shown.types, &begun.types)) {
                    return Err(SqlProblem::new(NOT_SUPPORTED, "cached plan must not change result type").into());
                }
                progress.begin(begun)
            }
        };
        let formats = prepared::result_formats(&portal.formats, answer.types.len())?;
        let format = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let sent = self.send_rows(answer, &mut RowOutput::Rows(&format), max_rows, &limits).await?;
        if sent.may_have_more {
            answer.turn().pause();
            self.socket.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()))?;
        } else {
            portal.progress = PortalProgress::Ended { taken: answer.taken() };
            self.complete(&tag(statement, sent.rows))?;
        }
        Ok(portal)
    }

    /// Sends the rows of a FETCH, or more of them. Returns the portal with its progress.
    async fn execute_fetch(&mut self, fetch: &Fetch, mut portal: Portal, max_rows: usize) -> Answered<Portal> {
        let resumed_at = match portal.progress {
            PortalProgress::Fetching { taken } => Some(taken),
            PortalProgress::Ended { .. } => {
                self.complete("FETCH 0")?;
                return Ok(portal);
            }
            _ => None,
        };
        let (formats, shown) = (portal.formats.clone(), portal.prepared.shown.clone());
        portal.progress = self.fetch(fetch, FetchedBy::Portal { formats, shown, max_rows, resumed_at }).await?;
        Ok(portal)
    }
}

fn too_much(what: &str) -> SqlProblem {
    SqlProblem::new(CONFIGURATION_LIMIT, format!("found more than {MAX_KEPT_BYTES} bytes of {what}: close those that are not used"))
}

pub(super) fn no_statement(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_PORTAL, format!("portal \"{name}\" does not exist"))
}
