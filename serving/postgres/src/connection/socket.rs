//! A connection's bytes: what a client sent and is not read yet, and what it is to get.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Gone;
use crate::frames::{self, Message};
use crate::problem::{PROTOCOL_VIOLATION, SqlProblem};
use crate::startup::{CLOSE_TIME, Stream};

/// Before a read there is room for this many bytes: for the messages that ask one statement, with their parameters.
const READ_BYTES: usize = 4 << 10;
/// Answers go out in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;
/// While a query runs, this much of what a client sends meanwhile is read.
const AHEAD_BYTES: usize = 64 << 10;
/// A client that takes nothing for this time is disconnected: it keeps the files of what it reads.
const STALLED: Duration = Duration::from_secs(600);

/// A connection's bytes as it begins.
#[derive(Default)]
pub(crate) struct Buffers {
    /// What was read already.
    pub(crate) read: BytesMut,
    /// What is to be sent first.
    pub(crate) out: BytesMut,
}

pub(super) struct Socket {
    stream: Box<dyn Stream>,
    read: BytesMut,
    /// What is to be sent.
    pub(super) out: BytesMut,
    /// Whether something was written that may not be on its way: TLS has a buffer of its own.
    is_unflushed: bool,
}

impl Socket {
    pub(super) fn new(stream: Box<dyn Stream>, buffers: Buffers) -> Self {
        Self { stream, read: buffers.read, out: buffers.out, is_unflushed: true }
    }

    /// A message that has come already.
    pub(super) fn message_at_hand(&mut self) -> Option<Result<Message, SqlProblem>> {
        frames::message(&mut self.read).map_err(|error| SqlProblem::fatal(PROTOCOL_VIOLATION, error.message())).transpose()
    }

    pub(super) async fn message(&mut self) -> Result<Result<Message, SqlProblem>, Gone> {
        loop {
            if let Some(message) = self.message_at_hand() {
                return Ok(message);
            }
            if self.read_more().await == 0 {
                return Err(Gone);
            }
        }
    }

    /// Returns how many bytes came: none from a client that has gone.
    async fn read_more(&mut self) -> usize {
        self.read.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.read).await.unwrap_or_default()
    }

    /// Waits until the client has gone.
    pub(super) async fn hung_up(&mut self) {
        while self.read.len() < AHEAD_BYTES {
            if self.read_more().await == 0 {
                return;
            }
        }
        std::future::pending().await
    }

    pub(super) fn put(&mut self, message: PgWireBackendMessage) -> Result<(), Gone> {
        frames::put(&mut self.out, message).map_err(|error| {
            tracing::error!(%error, "a message of the PostgreSQL protocol could not be written");
            Gone
        })
    }

    /// Appends a part of a COPY.
    pub(super) fn put_copy(&mut self, data: Option<BytesMut>) {
        if let Some(data) = data {
            self.out.put_u8(b'd');
            self.out.put_i32((data.len() + size_of::<i32>()) as i32);
            self.out.extend_from_slice(&data);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= PIECE_BYTES
    }

    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        while !self.out.is_empty() {
            self.is_unflushed = true;
            match timeout(STALLED, self.stream.write_buf(&mut self.out)).await {
                Ok(Ok(written)) if written > 0 => {}
                _ => return Err(Gone),
            }
        }
        if !self.is_unflushed {
            return Ok(());
        }
        if !matches!(timeout(STALLED, self.stream.flush()).await, Ok(Ok(()))) {
            return Err(Gone);
        }
        self.is_unflushed = false;
        // One large row does not keep its memory.
        if self.out.capacity() > 4 * PIECE_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    pub(super) async fn close(mut self) {
        let _ = timeout(CLOSE_TIME, self.stream.shutdown()).await;
    }
}

#[cfg(test)]
mod tests;
