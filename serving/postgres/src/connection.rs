//! One client: its messages are taken one by one, and each is answered before the next is read.
//!
//! The files beside it: `socket` (bytes in and out), `prepared` (statements and portals), `answering` (rows on their way).

use std::time::Duration;

use bytes::BytesMut;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyOutResponse};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, ReadyForQuery};
use pgwire::messages::startup::ParameterStatus;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cancel::CancelKey;
use crate::columns::row_description;
use crate::copy::{CopyFormat, copy};
use crate::frames::{Message, Target};
use crate::login::Caller;
use crate::problem::{
    CONFIGURATION_LIMIT, DUPLICATE_STATEMENT, IDLE_IN_TRANSACTION, IN_FAILED_TRANSACTION, NOT_SUPPORTED, PROTOCOL_VIOLATION, Problem,
    SHUTTING_DOWN, UNDEFINED_PORTAL, UNDEFINED_STATEMENT, warning,
};
use crate::question::{Answer, Answerer, Description, Position, text_schema};
use crate::rows::{RowFormat, TEXT};
use crate::session::Session;
use crate::startup::Stream;
use crate::statement::{Command, Statement, statements};

mod answering;
mod prepared;
mod socket;

use answering::{Limits, Sent, Sink};
use prepared::{Descriptions, Portal, Prepared, Progress};
use socket::Socket;

/// A client may keep this many prepared statements, and this many portals.
const MAX_KEPT: usize = 10_000;

/// Their texts, and their parameters, may have this many bytes.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// One of fewer bytes is not counted: as many as may be kept have little more.
const SMALL_BYTES: usize = 4 << 10;

fn too_much(what: &str) -> Problem {
    Problem::new(CONFIGURATION_LIMIT, format!("found more than {MAX_KEPT_BYTES} bytes of {what}: close those that are not used"))
}

pub(crate) struct Connection {
    socket: Socket,
    session: Session,
    answerer: Answerer,
    caller: Caller,
    cancel: CancelKey,
    statements: prepared::Named<Prepared>,
    portals: prepared::Named<Portal>,
    descriptions: Descriptions,
    /// The settings as they were last reported to the client.
    reported: Vec<(&'static str, String)>,
    /// After an error in a message of the extended protocol, the others up to the next Sync are dropped.
    skips_to_sync: bool,
}

/// What ends a connection without an answer: the client has gone.
pub(crate) struct Gone;

/// Why a message was not answered as it asks.
pub(crate) enum Failure {
    Problem(Problem),
    Gone,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure::Problem(problem)
    }
}

impl From<types::Error> for Failure {
    fn from(error: types::Error) -> Self {
        Failure::Problem(error.into())
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Gone
    }
}

type Answered<T = ()> = Result<T, Failure>;

/// Which statement runs in which way.
struct Asked<'a> {
    statement: &'a Statement,
    /// The whole text that it is part of.
    text: &'a str,
}

impl Connection {
    /// `buffers` are what was read already and what is to be sent first.
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        buffers: (BytesMut, BytesMut),
        session: Session,
        (answerer, caller): (Answerer, Caller),
        cancel: CancelKey,
    ) -> Self {
        let reported = session.reported();
        let socket = Socket::new(stream, buffers);
        let (statements, portals, descriptions) = Default::default();
        Self { socket, session, answerer, caller, cancel, statements, portals, descriptions, reported, skips_to_sync: false }
    }

    /// Answers until the client leaves, or `stop`.
    pub(crate) async fn run(mut self, stop: &CancellationToken) {
        // An error is one of the connection: nothing more can be said.
        let _ = self.answer_all(stop).await;
        self.socket.close().await;
    }

    async fn answer_all(&mut self, stop: &CancellationToken) -> Result<(), Gone> {
        loop {
            let next = self.next_message(stop).await?;
            let message = match next.and_then(|message| self.caller.may_go_on().map(|()| message)) {
                Ok(Message::Terminate) => return Ok(()),
                Ok(message) => message,
                Err(problem) => {
                    self.socket.put(problem.message())?;
                    return self.socket.flush().await;
                }
            };
            match self.answer(message).await {
                Ok(()) => {}
                Err(Failure::Gone) => return Err(Gone),
                Err(Failure::Problem(problem)) => {
                    metrics::counter!("basestream_serving_postgres_errors_total", "state" => problem.state).increment(1);
                    self.session.fail();
                    self.socket.put(problem.message())?;
                    self.skips_to_sync = true;
                }
            }
        }
    }

    /// The next message, or why the connection ends.
    async fn next_message(&mut self, stop: &CancellationToken) -> Result<Result<Message, Problem>, Gone> {
        if self.socket.is_full() {
            self.socket.flush().await?;
        }
        if let Some(message) = self.socket.message_at_hand() {
            return Ok(message);
        }
        self.socket.flush_if_asked().await?;
        let limit = self.session.idle_timeout();
        let next = timeout(limit.unwrap_or(Duration::MAX), self.socket.message());
        tokio::select! {
            () = stop.cancelled() => Ok(Err(Problem::fatal(SHUTTING_DOWN, "terminating connection: the server is stopping"))),
            next = next => match next {
                Ok(message) => message,
                Err(_) => Ok(Err(Problem::fatal(IDLE_IN_TRANSACTION, "terminating connection: a transaction did nothing for too long"))),
            },
        }
    }

    async fn answer(&mut self, message: Message) -> Answered {
        if let Message::Sync = message {
            return self.sync().await;
        }
        if let Message::Query(text) = &message {
            self.skips_to_sync = false;
            return self.query(text).await;
        }
        if self.skips_to_sync {
            return Ok(());
        }
        match message {
            Message::Parse { name, sql, types } => self.parse(name, sql, types),
            Message::Bind { portal, statement, formats, values, result_formats } => {
                self.bind(portal, &statement, (&formats, &values), result_formats).await
            }
            Message::Describe { what: Target::Statement, name } => self.describe_statement(&name).await,
            Message::Describe { what: Target::Portal, name } => self.describe_portal(&name).await,
            Message::Execute { portal, max_rows } => {
                let outcome = self.execute(&portal, max_rows).await;
                self.cancel.end();
                outcome
            }
            Message::Close { what, name } => {
                match what {
                    Target::Statement => drop(self.statements.remove(&name)),
                    Target::Portal => drop(self.portals.remove(&name)),
                }
                Ok(self.socket.put(PgWireBackendMessage::CloseComplete(CloseComplete::new()))?)
            }
            Message::Flush => Ok(self.socket.flush().await?),
            Message::CopyIn => Ok(()),
            Message::Secret(_) => Err(Problem::new(PROTOCOL_VIOLATION, "found a password that nobody asked for").into()),
            Message::Sync | Message::Query(_) | Message::Terminate => Ok(()),
        }
    }

    async fn sync(&mut self) -> Answered {
        self.skips_to_sync = false;
        // Portals end with their transaction, and outside of one each Sync ends it.
        if !self.session.in_transaction() {
            self.portals.clear();
        }
        self.ready().await
    }

    async fn ready(&mut self) -> Answered {
        self.report()?;
        self.socket.put(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(self.session.status())))?;
        Ok(self.socket.flush().await?)
    }

    /// Tells the client which settings changed.
    fn report(&mut self) -> Answered {
        let now = self.session.reported();
        for ((name, value), (_, before)) in now.iter().zip(&self.reported) {
            if value != before {
                let status = ParameterStatus::new((*name).to_owned(), value.clone());
                self.socket.put(PgWireBackendMessage::ParameterStatus(status))?;
            }
        }
        self.reported = now;
        Ok(())
    }

    /// A text of the simple protocol. Several statements are one transaction, as in PostgreSQL.
    async fn query(&mut self, text: &str) -> Answered {
        self.portals.remove("");
        let outcome = match statements(text) {
            Ok(statements) if statements.is_empty() => {
                self.socket.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
                Ok(())
            }
            Ok(statements) => self.statements_in_turn(text, &statements).await,
            Err(problem) => Err(problem.into()),
        };
        self.cancel.end();
        match outcome {
            Ok(()) => {}
            Err(Failure::Gone) => return Err(Failure::Gone),
            Err(Failure::Problem(problem)) => {
                metrics::counter!("basestream_serving_postgres_errors_total", "state" => problem.state).increment(1);
                self.session.fail();
                self.socket.put(problem.message())?;
            }
        }
        self.ready().await
    }

    async fn statements_in_turn(&mut self, text: &str, statements: &[Statement]) -> Answered {
        let mut implicit = statements.len() > 1 && self.session.begin_transaction();
        for statement in statements {
            let asked = Asked { statement, text };
            if implicit && statement.command == Command::Begin {
                implicit = false;
                self.complete("BEGIN")?;
                continue;
            }
            if let Err(failure) = self.run_simple(&asked).await {
                if implicit {
                    self.session.end_transaction(false);
                }
                return Err(failure);
            }
            implicit &= self.session.in_transaction();
        }
        if implicit {
            self.session.end_transaction(true);
        }
        Ok(())
    }

    async fn run_simple(&mut self, asked: &Asked<'_>) -> Answered {
        self.refuse_if_failed(&asked.statement.command)?;
        let limits = self.limits();
        match &asked.statement.command {
            Command::Rows => {
                let answer = self.begin(asked, Vec::new(), &limits).await?;
                let formats = vec![TEXT; answer.types.len()];
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&answer.schema, &answer.types, &formats)))?;
                self.send_all(asked, answer, formats, &limits).await
            }
            Command::Copy => self.copy_out(asked, &limits).await,
            Command::Show { .. } | Command::ShowAll => {
                let answer = self.shown(&asked.statement.command)?;
                let formats = vec![TEXT; answer.types.len()];
                self.socket.put(PgWireBackendMessage::RowDescription(row_description(&answer.schema, &answer.types, &formats)))?;
                self.send_all(asked, answer, formats, &limits).await
            }
            command => self.change(command),
        }
    }

    /// In a failed transaction, only its end is answered.
    fn refuse_if_failed(&self, command: &Command) -> Answered {
        if !self.session.has_failed() || matches!(command, Command::Commit | Command::Rollback | Command::RollbackTo) {
            return Ok(());
        }
        Err(Problem::new(IN_FAILED_TRANSACTION, "current transaction is aborted, commands ignored until end of transaction block").into())
    }

    fn limits(&self) -> Limits {
        Limits::new(self.caller.clone(), self.cancel.begin(), self.answerer.node.query_timeout(), self.session.statement_timeout())
    }

    /// Plans a statement and begins it.
    async fn begin(&mut self, asked: &Asked<'_>, params: Vec<datafusion::common::ScalarValue>, limits: &Limits) -> Answered<Answer> {
        let node = self.answerer.node.clone();
        let read_view = match self.session.in_transaction() {
            true => Some(self.session.read_view(|| node.read_view())?),
            false => None,
        };
        let position = Position { read_view, as_of: self.session.as_of() };
        metrics::counter!("basestream_serving_postgres_queries_total").increment(1);
        let asking = self.answerer.ask(&asked.statement.sql, params, position);
        match limits.first(asking, &mut self.socket).await? {
            Ok(answer) => Ok(answer),
            Err(error) => Err(Problem::from(error).within(asked.text, asked.statement.start).into()),
        }
    }

    async fn send_all(&mut self, asked: &Asked<'_>, mut answer: Answer, formats: Vec<i16>, limits: &Limits) -> Answered {
        let format = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let Sent { rows, .. } = answering::send(&mut self.socket, &mut answer, &mut Sink::Rows(&format), 0, limits).await?;
        self.complete(&tag(asked.statement, rows))
    }

    async fn copy_out(&mut self, asked: &Asked<'_>, limits: &Limits) -> Answered {
        let copy = copy(&asked.statement.sql).map_err(|problem| problem.within(asked.text, asked.statement.start))?;
        let select = Statement { sql: copy.sql, start: 0, command: Command::Rows };
        // Its places are those of another text.
        let mut answer = self.begin(&Asked { statement: &select, text: "" }, Vec::new(), limits).await?;
        let value_format = copy.format.value_format();
        let formats = vec![value_format; answer.types.len()];
        let overall = i8::from(copy.format == CopyFormat::Binary);
        let response = CopyOutResponse::new(overall, answer.types.len() as i16, formats.clone());
        self.socket.put(PgWireBackendMessage::CopyOutResponse(response))?;
        let mut begin = copy.format.begin(&answer.schema);
        // Clients expect a line of names by itself, and what is binary together with the first row.
        if copy.format != CopyFormat::Binary {
            self.socket.put_copy(begin.take());
        }
        let values = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let mut sink = Sink::Copy { format: &copy.format, values: &values, begin };
        let Sent { rows, .. } = answering::send(&mut self.socket, &mut answer, &mut sink, 0, limits).await?;
        if let Sink::Copy { begin, .. } = sink {
            self.socket.put_copy(begin);
        }
        self.socket.put_copy(copy.format.end());
        self.socket.put(PgWireBackendMessage::CopyDone(CopyDone::new()))?;
        self.complete(&format!("COPY {rows}"))
    }

    /// A statement without rows.
    fn change(&mut self, command: &Command) -> Answered {
        let done = match command {
            Command::Set { name, value, is_local } => {
                self.session.set(name, value.as_deref(), *is_local)?;
                "SET"
            }
            Command::Reset { name } => {
                self.session.set(name, None, false)?;
                "RESET"
            }
            Command::ResetAll => {
                self.session.reset_all();
                "RESET"
            }
            Command::Discard { what } => return self.discard(what),
            Command::Begin => {
                if !self.session.begin_transaction() {
                    self.socket.put(warning("25001", "there is already a transaction in progress"))?;
                }
                "BEGIN"
            }
            Command::Commit | Command::Rollback => {
                self.portals.clear();
                let committed = self.session.end_transaction(*command == Command::Commit);
                if committed.is_none() {
                    self.socket.put(warning("25P01", "there is no transaction in progress"))?;
                }
                match (command, committed) {
                    (Command::Rollback, _) | (_, Some(false)) => "ROLLBACK",
                    _ => "COMMIT",
                }
            }
            Command::RollbackTo => {
                if !self.session.go_on_from_savepoint() {
                    return Err(Problem::new("25P01", "ROLLBACK TO SAVEPOINT can only be used in transaction blocks").into());
                }
                "ROLLBACK"
            }
            Command::Deallocate { name: None } => {
                self.statements.clear();
                "DEALLOCATE ALL"
            }
            Command::Deallocate { name: Some(name) } => {
                if self.statements.remove(name).is_none() {
                    return Err(no_statement(name).into());
                }
                "DEALLOCATE"
            }
            Command::Nothing { tag } => tag,
            Command::Rows | Command::Copy | Command::Show { .. } | Command::ShowAll => "SELECT 0",
        };
        self.complete(done)
    }

    fn discard(&mut self, what: &str) -> Answered {
        match what {
            "all" if self.session.in_transaction() => {
                return Err(Problem::new("25001", "DISCARD ALL cannot run inside a transaction block").into());
            }
            "all" => {
                self.session.reset_all();
                self.statements.clear();
                self.portals.clear();
                self.descriptions = Descriptions::default();
            }
            "plans" | "sequences" | "temp" | "temporary" => {}
            other => return Err(Problem::new("42601", format!("DISCARD {other}: expected ALL, PLANS, SEQUENCES or TEMP")).into()),
        }
        self.complete(&format!("DISCARD {}", what.to_uppercase()))
    }

    fn shown(&self, command: &Command) -> Answered<Answer> {
        use arrow::array::{ArrayRef, RecordBatch, StringArray};
        use std::sync::Arc;
        let (names, columns): (Vec<&str>, Vec<Vec<String>>) = match command {
            Command::Show { name } => (vec![name.as_str()], vec![vec![self.session.get(name)?]]),
            _ => {
                let (names, values) = self.session.all().into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
                (vec!["name", "setting"], vec![names, values])
            }
        };
        let schema = text_schema(&names);
        let columns = columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(types::Error::from)?;
        Ok(Answer::of_texts(schema, Some(batch)))
    }

    fn complete(&mut self, tag: &str) -> Answered {
        Ok(self.socket.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag.to_owned())))?)
    }

    /// Keeps the text: it is planned when it is described, and again when it is run.
    fn parse(&mut self, name: String, sql: String, types: Vec<u32>) -> Answered {
        let mut statements = statements(&sql)?;
        if statements.len() > 1 {
            return Err(Problem::new("42601", "cannot insert multiple commands into a prepared statement").into());
        }
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Problem::new(DUPLICATE_STATEMENT, format!("prepared statement \"{name}\" already exists")).into());
        }
        if self.statements.len() >= MAX_KEPT {
            return Err(Problem::new(
                CONFIGURATION_LIMIT,
                format!("more than {MAX_KEPT} prepared statements: close those that are not used"),
            )
            .into());
        }
        let kept = self.statements.values().map(|prepared| prepared.sql.len());
        if sql.len() > SMALL_BYTES && kept.sum::<usize>() + sql.len() > MAX_KEPT_BYTES {
            return Err(too_much("prepared statements").into());
        }
        self.statements.insert(name, Prepared::new(sql, statements.pop(), types));
        Ok(self.socket.put(PgWireBackendMessage::ParseComplete(ParseComplete::new()))?)
    }

    async fn bind(
        &mut self,
        name: String,
        statement: &str,
        (formats, values): (&[i16], &[Option<bytes::Bytes>]),
        result_formats: Vec<i16>,
    ) -> Answered {
        let prepared = self.statements.get(statement).ok_or_else(|| no_statement(statement))?.clone();
        let types = match prepared.types_are_known(values.len()) || prepared.command() != Some(&Command::Rows) {
            true => prepared.types.clone(),
            false => self.described(&prepared).await?.params,
        };
        let params = prepared::values(&types, formats, values)?;
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(Problem::new("42P03", format!("cursor \"{name}\" already exists")).into());
        }
        if self.portals.len() >= MAX_KEPT {
            return Err(Problem::new(CONFIGURATION_LIMIT, format!("more than {MAX_KEPT} portals: close those that are not used")).into());
        }
        let bytes_of = |params: &[datafusion::common::ScalarValue]| params.iter().map(|param| param.size()).sum::<usize>();
        let kept = self.portals.values().map(|portal| bytes_of(&portal.params));
        if bytes_of(&params) > SMALL_BYTES && kept.sum::<usize>() + bytes_of(&params) > MAX_KEPT_BYTES {
            return Err(too_much("parameters of portals").into());
        }
        self.portals.insert(name, Portal { prepared, params, formats: result_formats, progress: Progress::NotBegun });
        Ok(self.socket.put(PgWireBackendMessage::BindComplete(BindComplete::new()))?)
    }

    /// What a statement is, as of now. A text that was described since the catalog changed last is not planned again.
    async fn described(&mut self, prepared: &Prepared) -> Answered<Description> {
        let Some(statement) = &prepared.statement else { return Ok(prepared::nothing()) };
        match &statement.command {
            Command::Rows => {}
            Command::Show { name } => return Ok(prepared::texts(&[name])),
            Command::ShowAll => return Ok(prepared::texts(&["name", "setting"])),
            _ => return Ok(prepared::nothing()),
        }
        self.refuse_if_failed(&statement.command)?;
        let node = self.answerer.node.clone();
        let read_view = self.session.read_view(|| node.read_view())?;
        let revision = read_view.loaded.state.revision;
        if let Some(known) = self.descriptions.get(prepared, revision) {
            return Ok(known);
        }
        let limits = self.limits();
        let describing = self.answerer.describe(&statement.sql, &prepared.types, read_view);
        let described = limits.first(describing, &mut self.socket).await?;
        self.cancel.end();
        let described = described.map_err(|problem| problem.within(&prepared.sql, statement.start))?;
        self.descriptions.keep(prepared, revision, described.clone());
        Ok(described)
    }

    async fn describe_statement(&mut self, name: &str) -> Answered {
        let prepared = self.statements.get(name).ok_or_else(|| no_statement(name))?.clone();
        let described = self.described(&prepared).await?;
        let parameters = ParameterDescription::new(described.params.clone());
        self.socket.put(PgWireBackendMessage::ParameterDescription(parameters))?;
        self.put_columns(&described, &[])?;
        if let Some(kept) = self.statements.get_mut(name) {
            kept.shown = Some(described.types);
        }
        Ok(())
    }

    async fn describe_portal(&mut self, name: &str) -> Answered {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        let (prepared, formats) = (portal.prepared.clone(), portal.formats.clone());
        let described = self.described(&prepared).await?;
        let formats = prepared::result_formats(&formats, described.types.len())?;
        self.put_columns(&described, &formats)?;
        if let Some(portal) = self.portals.get_mut(name) {
            portal.prepared.shown = Some(described.types);
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

    async fn execute(&mut self, name: &str, max_rows: i32) -> Answered {
        // Taken out while it runs: one that fails is not run again.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let Some(statement) = portal.prepared.statement.clone() else {
            self.portals.insert(name.to_owned(), portal);
            return Ok(self.socket.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?);
        };
        self.refuse_if_failed(&statement.command)?;
        let text = portal.prepared.sql.clone();
        let asked = Asked { statement: &statement, text: &text };
        let limits = self.limits();
        let answer = match (&statement.command, &mut portal.progress) {
            (Command::Copy, _) => return self.copy_out(&asked, &limits).await,
            (Command::Rows | Command::Show { .. } | Command::ShowAll, Progress::Ended) => {
                self.complete(&tag(&statement, 0))?;
                self.portals.insert(name.to_owned(), portal);
                return Ok(());
            }
            (Command::Rows | Command::Show { .. } | Command::ShowAll, Progress::Begun(answer)) => answer,
            (Command::Rows, progress @ Progress::NotBegun) => {
                let answer = self.begin(&asked, std::mem::take(&mut portal.params), &limits).await?;
                if portal.prepared.shown.as_ref().is_some_and(|shown| !prepared::are_alike(shown, &answer.types)) {
                    return Err(Problem::new(NOT_SUPPORTED, "cached plan must not change result type").into());
                }
                progress.begin(answer)
            }
            (Command::Show { .. } | Command::ShowAll, progress @ Progress::NotBegun) => progress.begin(self.shown(&statement.command)?),
            (command, _) => return self.change(command),
        };
        let formats = prepared::result_formats(&portal.formats, answer.types.len())?;
        let format = RowFormat { types: answer.types.clone(), formats, zone: self.session.zone() };
        let sent = answering::send(&mut self.socket, answer, &mut Sink::Rows(&format), max_rows.max(0) as usize, &limits).await?;
        if sent.may_have_more {
            self.socket.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()))?;
        } else {
            portal.progress = Progress::Ended;
            self.complete(&tag(&statement, sent.rows))?;
        }
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }
}

fn no_statement(name: &str) -> Problem {
    Problem::new(UNDEFINED_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> Problem {
    Problem::new(UNDEFINED_PORTAL, format!("portal \"{name}\" does not exist"))
}

fn tag(statement: &Statement, rows: u64) -> String {
    let is = |keyword: &str| statement.sql.get(..keyword.len()).is_some_and(|start| start.eq_ignore_ascii_case(keyword));
    match statement.command {
        Command::Show { .. } | Command::ShowAll => "SHOW".to_owned(),
        _ if is("explain") => "EXPLAIN".to_owned(),
        _ => format!("SELECT {rows}"),
    }
}
