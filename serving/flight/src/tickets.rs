//! What clients hold of a query: a ticket, or the handle of a prepared statement. Either has all that its answer needs,
//! so that the server keeps nothing for it and another node can answer it. It opens nothing by itself: who fetches the
//! answer says who it is, and its rights are checked then.

use arrow_flight::Ticket;
use arrow_flight::sql::{Any, Command, ProstMessageExt, TicketStatementQuery};
use bytes::Bytes;
use prost::Message;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

/// A ticket comes back in a request: it may have this many bytes, which leaves room for what is around it.
const MAX_BYTES: usize = 3 << 20;

/// A query with all that its answer depends on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AskedQuery {
    #[prost(string, tag = "1")]
    pub(crate) sql: String,
    /// The time that is asked where the text names none.
    #[prost(sint64, optional, tag = "2")]
    pub(crate) as_of: Option<Micros>,
    /// The values of `$1`, `$2`, ..: one row as an Arrow stream, or nothing.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) params: Bytes,
    /// Names the query while it runs. A prepared statement has none.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) id: Bytes,
}

impl AskedQuery {
    pub(crate) fn new(sql: String, as_of: Option<Micros>) -> Self {
        Self { sql, as_of, ..Self::default() }
    }

    /// The handle of a prepared statement.
    ///
    /// Errors: `Limit`.
    pub(crate) fn handle(&self) -> Result<Bytes> {
        let length = self.encoded_len();
        if length > MAX_BYTES {
            return Err(Error::limit(format!("found {length} bytes of SQL and parameters: expected at most {MAX_BYTES}")));
        }
        Ok(self.encode_to_vec().into())
    }

    /// A ticket for one answer, which names the query anew.
    ///
    /// Errors: `Limit`.
    pub(crate) fn ticket(&self) -> Result<Ticket> {
        let named = AskedQuery { id: Uuid::new_v4().as_bytes().to_vec().into(), ..self.clone() };
        let ticket = TicketStatementQuery { statement_handle: named.handle()? };
        Ok(Ticket::new(ticket.as_any().encode_to_vec()))
    }

    /// Reads a handle, or what a ticket holds.
    pub(crate) fn read(bytes: &[u8]) -> Result<AskedQuery> {
        let wrong = || Error::input("the ticket or handle is not understood: expected one that this server made");
        let query = AskedQuery::decode(bytes).map_err(|error| wrong().caused_by(error))?;
        if query.sql.is_empty() { Err(wrong()) } else { Ok(query) }
    }
}

/// What a descriptor or a ticket asks, in the words of Flight SQL.
pub(crate) fn command(bytes: &[u8]) -> Result<Command> {
    let wrong = || Error::input("the request is not understood: expected a command of Flight SQL");
    let any = Any::decode(bytes).map_err(|error| wrong().caused_by(error))?;
    // As of a descriptor that has a path.
    if any.type_url.is_empty() {
        return Err(wrong());
    }
    Command::try_from(any).map_err(|error| wrong().caused_by(error))
}

/// The name of a command, for messages.
pub(crate) fn name(command: &Command) -> &str {
    let url = command.type_url();
    url.rsplit('.').next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_has_all_of_its_query_and_a_name_of_its_own() {
        let query = AskedQuery { params: Bytes::from_static(b"row"), ..AskedQuery::new("SELECT 1".into(), Some(-5)) };
        let read = |ticket: Ticket| match command(&ticket.ticket).unwrap() {
            Command::TicketStatementQuery(ticket) => AskedQuery::read(&ticket.statement_handle).unwrap(),
            other => panic!("{other:?}"),
        };
        let (one, two) = (read(query.ticket().unwrap()), read(query.ticket().unwrap()));
        assert_eq!(AskedQuery { id: Bytes::new(), ..one.clone() }, query);
        assert_ne!(one.id, two.id);
        assert_eq!(AskedQuery::read(&query.handle().unwrap()).unwrap(), query);
    }

    #[test]
    fn what_this_server_did_not_make_is_refused() {
        for bytes in [&b""[..], b"\xff\xff\xff", b"not a ticket"] {
            assert!(AskedQuery::read(bytes).is_err(), "{bytes:?}");
        }
        for bytes in [&b""[..], b"\xff\xff"] {
            let error = command(bytes).unwrap_err();
            assert!(error.message().starts_with("the request is not understood: expected a command of Flight SQL"), "{error}");
        }
        let long = AskedQuery::new("x".repeat(MAX_BYTES), None);
        assert_eq!(long.handle().unwrap_err().kind(), types::ErrorKind::Limit);
    }
}
