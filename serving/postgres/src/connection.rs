//! One client: its messages are taken one by one, and each is answered before the next is read.
//!
//! The files beside it: `socket` (bytes in and out), `simple` and `extended` (the two ways to ask), `prepared`
//! (statements and portals), `cursors` (portals by SQL), `asking` (statements with rows) and `answering` (rows on their
//! way), `changing` (statements without).

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::CloseComplete;
use pgwire::messages::response::ReadyForQuery;
use pgwire::messages::startup::ParameterStatus;
use serving::SearchPath;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cancel::CancelKey;
use crate::frames::{Message, Target};
use crate::login::Caller;
use crate::problem::{IDLE_IN_TRANSACTION, PROTOCOL_VIOLATION, SHUTTING_DOWN, SqlProblem};
use crate::query::QueryEngine;
use crate::session::ClientSession;
use crate::startup::Stream;
use crate::statement::Statement;

mod answering;
mod asking;
mod changing;
mod cursors;
mod extended;
mod prepared;
mod simple;
mod socket;

use prepared::{Descriptions, Portal, Prepared};
pub(crate) use socket::Buffers;
use socket::Socket;

pub(crate) struct Connection {
    socket: Socket,
    session: ClientSession,
    query_engine: QueryEngine,
    caller: Caller,
    cancel: CancelKey,
    statements: prepared::Named<Prepared>,
    portals: prepared::Named<Portal>,
    portals_made: u64,
    descriptions: Descriptions,
    /// The settings as they were last reported to the client.
    reported: Vec<(&'static str, String)>,
    /// The session's count of changes at that time.
    reported_changes: u64,
    /// After an error in a message of the extended protocol, the others up to the next Sync are dropped.
    skips_to_sync: bool,
}

/// What ends a connection without an answer: the client has gone.
pub(crate) struct Gone;

/// Why a message was not answered as it asks.
pub(crate) enum MessageFailure {
    Problem(SqlProblem),
    Gone,
}

impl From<SqlProblem> for MessageFailure {
    fn from(problem: SqlProblem) -> Self {
        MessageFailure::Problem(problem)
    }
}

impl From<types::Error> for MessageFailure {
    fn from(error: types::Error) -> Self {
        MessageFailure::Problem(error.into())
    }
}

impl From<Gone> for MessageFailure {
    fn from(_: Gone) -> Self {
        MessageFailure::Gone
    }
}

type Answered<T = ()> = Result<T, MessageFailure>;

/// The statement that runs.
struct RunningStatement<'a> {
    statement: &'a Statement,
    /// The whole text that it is part of.
    text: &'a str,
    /// Where its tables are looked for.
    search_path: SearchPath,
}

impl Connection {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        buffers: Buffers,
        session: ClientSession,
        query_engine: QueryEngine,
        caller: Caller,
        cancel: CancelKey,
    ) -> Self {
        let (reported, reported_changes) = (session.reported(), session.changes());
        let socket = Socket::new(stream, buffers);
        let (statements, portals, descriptions) = Default::default();
        Self {
            socket,
            session,
            query_engine,
            caller,
            cancel,
            statements,
            portals,
            portals_made: 0,
            descriptions,
            reported,
            reported_changes,
            skips_to_sync: false,
        }
    }

    /// Answers until the client leaves, or `stop`.
    pub(crate) async fn run(mut self, stop: &CancellationToken) {
        // A token of its own, so that connections do not wait for one another's locks before each message.
        let stop = stop.child_token();
        // An error is one of the connection: nothing more can be said.
        let _ = self.answer_all(&stop).await;
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
                Err(MessageFailure::Gone) => return Err(Gone),
                Err(MessageFailure::Problem(problem)) => {
                    metrics::counter!("basestream_serving_postgres_errors_total", "state" => problem.state).increment(1);
                    self.session.fail();
                    self.socket.put(problem.message())?;
                    self.skips_to_sync = true;
                }
            }
        }
    }

    /// The next message, or why the connection ends.
    async fn next_message(&mut self, stop: &CancellationToken) -> Result<Result<Message, SqlProblem>, Gone> {
        if self.socket.is_full() {
            self.socket.flush().await?;
        }
        if let Some(message) = self.socket.message_at_hand() {
            return Ok(message);
        }
        // Before the client is waited for, nothing is kept from it.
        self.socket.flush().await?;
        let has_suspended_portal = self.portals.values().any(|portal| portal.progress.has_begun());
        let limit = self.session.idle_timeout(has_suspended_portal);
        let message = self.socket.message();
        let next = async {
            match limit {
                Some(limit) => timeout(limit, message).await,
                None => Ok(message.await),
            }
        };
        tokio::select! {
            () = stop.cancelled() => Ok(Err(SqlProblem::fatal(SHUTTING_DOWN, "terminating connection: the server is stopping"))),
            next = next => match next {
                Ok(message) => message,
                Err(_) => {
                    let message = "terminating connection: a transaction or a suspended portal waited for too long";
                    Ok(Err(SqlProblem::fatal(IDLE_IN_TRANSACTION, message)))
                }
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
            Message::Execute { portal, max_rows } => self.execute(&portal, max_rows).await,
            Message::Close { what, name } => {
                match what {
                    Target::Statement => drop(self.statements.remove(&name)),
                    Target::Portal => drop(self.portals.remove(&name)),
                }
                Ok(self.socket.put(PgWireBackendMessage::CloseComplete(CloseComplete::new()))?)
            }
            Message::Flush => Ok(self.socket.flush().await?),
            Message::CopyIn => Ok(()),
            Message::Secret(_) => Err(SqlProblem::new(PROTOCOL_VIOLATION, "found a password that nobody asked for").into()),
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
        if self.session.changes() == self.reported_changes {
            return Ok(());
        }
        self.reported_changes = self.session.changes();
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
}
