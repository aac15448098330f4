//! Messages as bytes. What a client sends is checked before it is read: no length is believed, no text is taken that is
//! not UTF-8, and a message is read when all of it has come.

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use types::{Error, Reason, Result};

/// A message of a client that is at work has this many bytes at the most.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// One that has not said who it is, this many (as in PostgreSQL).
const MAX_STARTUP_BYTES: usize = 10_000;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;
const PROTOCOL_MAJOR: i32 = 3;

/// What a client begins with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Ssl,
    Gss,
    Cancel { process: i32, key: Bytes },
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// What a client sends later.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        sql: String,
        types: Vec<u32>,
    },
    Bind {
        portal: String,
        statement: String,
        formats: Vec<i16>,
        values: Vec<Option<Bytes>>,
        result_formats: Vec<i16>,
    },
    Describe {
        what: Target,
        name: String,
    },
    Execute {
        portal: String,
        max_rows: i32,
    },
    Close {
        what: Target,
        name: String,
    },
    Flush,
    Sync,
    Terminate,
    /// Of a COPY that a client sends, which is refused: what it sends meanwhile is dropped.
    CopyIn,
    /// A password, or what takes its place.
    Secret(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

/// Takes the first message of a connection from the front of `bytes`; `None` while it is not whole.
pub(crate) fn opening(bytes: &mut BytesMut) -> Result<Option<Opening>> {
    let Some(length) = length(bytes, 0, 8..=MAX_STARTUP_BYTES)? else { return Ok(None) };
    let mut body = Body(bytes.split_to(length).freeze());
    body.i32()?;
    let code = body.i32()?;
    match code {
        SSL_REQUEST => Ok(Some(Opening::Ssl)),
        GSS_REQUEST => Ok(Some(Opening::Gss)),
        CANCEL_REQUEST => Ok(Some(Opening::Cancel { process: body.i32()?, key: body.0 })),
        code if code >> 16 == PROTOCOL_MAJOR => {
            let mut parameters = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    return Ok(Some(Opening::Startup { minor: (code & 0xffff) as u16, parameters }));
                }
                parameters.push((name, body.text()?));
            }
        }
        other => Err(Error::input(format!("found protocol {}.{}, expected 3.0", other >> 16, other & 0xffff))),
    }
}

/// Takes the next message from the front of `bytes`; `None` while it is not whole.
pub(crate) fn message(bytes: &mut BytesMut) -> Result<Option<Message>> {
    message_within(bytes, MAX_MESSAGE_BYTES)
}

/// The same of a client that has not said who it is.
pub(crate) fn first_message(bytes: &mut BytesMut) -> Result<Option<Message>> {
    message_within(bytes, MAX_STARTUP_BYTES)
}

fn message_within(bytes: &mut BytesMut, most: usize) -> Result<Option<Message>> {
    let Some(kind) = bytes.first().copied() else { return Ok(None) };
    let Some(length) = length(bytes, 1, 4..=most)? else { return Ok(None) };
    let mut body = Body(bytes.split_to(length + 1).freeze());
    body.0.advance(5);
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, sql) = (body.text()?, body.text()?);
            Message::Parse { name, sql, types: body.list(|body| body.i32().map(|oid| oid as u32))? }
        }
        b'B' => {
            let (portal, statement) = (body.text()?, body.text()?);
            let formats = body.list(Body::i16)?;
            let values = body.list(Body::value)?;
            Message::Bind { portal, statement, formats, values, result_formats: body.list(Body::i16)? }
        }
        b'D' => Message::Describe { what: body.target()?, name: body.text()? },
        b'E' => Message::Execute { portal: body.text()?, max_rows: body.i32()? },
        b'C' => Message::Close { what: body.target()?, name: body.text()? },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'd' | b'c' | b'f' => Message::CopyIn,
        b'p' => Message::Secret(body.0),
        other => return Err(Error::input(format!("found a message of the type {other}, which the protocol does not have"))),
    };
    Ok(Some(message))
}

/// Appends a message.
pub(crate) fn put(out: &mut BytesMut, message: PgWireBackendMessage) -> Result<()> {
    message.encode(out).map_err(|error| Error::internal("a message could not be written").caused_by(error))
}

/// The length that a message says, if all of it is there.
fn length(bytes: &BytesMut, at: usize, allowed: std::ops::RangeInclusive<usize>) -> Result<Option<usize>> {
    let Some(said) = bytes.get(at..at + 4) else { return Ok(None) };
    let said = i32::from_be_bytes([said[0], said[1], said[2], said[3]]);
    match usize::try_from(said).ok().filter(|length| allowed.contains(length)) {
        None => Err(Error::limit(format!("found a message of {said} bytes, expected {} to {}", allowed.start(), allowed.end()))),
        Some(length) => Ok((bytes.len() >= at + length).then_some(length)),
    }
}

/// What is left to read of a message.
struct Body(Bytes);

impl Body {
    fn expect(&self, bytes: usize) -> Result<()> {
        if self.0.len() < bytes {
            return Err(Error::input("found a message that ends too early"));
        }
        Ok(())
    }

    fn i16(&mut self) -> Result<i16> {
        self.expect(size_of::<i16>())?;
        Ok(self.0.get_i16())
    }

    fn i32(&mut self) -> Result<i32> {
        self.expect(size_of::<i32>())?;
        Ok(self.0.get_i32())
    }

    /// A text that ends in a zero byte.
    fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(|| Error::input("found a text without an end in a message"))?;
        let not_utf8 = |_| Error::input("found a text that is not UTF-8").with_reason(Reason::NotUtf8);
        let text = std::str::from_utf8(&self.0[..end]).map_err(not_utf8)?.to_owned();
        self.0.advance(end + 1);
        Ok(text)
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.i16()? as u16;
        (0..count).map(|_| item(self)).collect()
    }

    fn value(&mut self) -> Result<Option<Bytes>> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Error::input("found a value of a negative length"))?;
                self.expect(length)?;
                Ok(Some(self.0.split_to(length)))
            }
        }
    }

    fn target(&mut self) -> Result<Target> {
        self.expect(1)?;
        match self.0.get_u8() {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            other => Err(Error::input(format!("found the target {other}, expected a statement (S) or a portal (P)"))),
        }
    }
}

#[cfg(test)]
mod tests;
