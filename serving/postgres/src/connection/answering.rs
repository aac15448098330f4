//! Sends rows to a client. An answer ends when its time is over, when it is cancelled, and when the client has gone.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::{BufMut, BytesMut};
use futures::poll;
use serving::Turn;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::socket::Socket;
use super::{Answered, MessageFailure};
use crate::copy::CopyFormat;
use crate::login::Caller;
use crate::problem::{QUERY_CANCELED, SqlProblem};
use crate::query::StatementRows;
use crate::rows::{BatchWriter, RowFormat};

/// When a statement ends that has not ended by itself.
pub(super) struct StatementLimits {
    /// Who asks: an answer ends when its token is revoked.
    caller: Caller,
    cancelled: CancellationToken,
    /// Its answer begins by then.
    begun: Instant,
    /// All of it is sent by then.
    ended: Instant,
}

/// How rows are written.
pub(super) enum RowOutput<'a> {
    Rows(&'a RowFormat),
    /// Not at all: they are passed over.
    Nothing,
    /// With what comes before the rows, in the first message with one.
    Copy {
        format: &'a CopyFormat,
        values: &'a RowFormat,
        begin: Option<BytesMut>,
    },
}

impl<'a> RowOutput<'a> {
    /// Appends rows to what is to be sent, until that is as much as goes out in one piece. Returns how many.
    fn put(&mut self, socket: &mut Socket, batch: &RecordBatch, rows: Range<usize>) -> types::Result<usize> {
        let Some(values) = self.values() else { return Ok(rows.len()) };
        let writer = BatchWriter::new(values, batch);
        let mut count = 0;
        for row in rows {
            let begin = socket.out.len();
            if let Err(error) = self.put_row(&mut socket.out, &writer, row) {
                // Half of a message would be taken for a whole one.
                socket.out.truncate(begin);
                return Err(error);
            }
            count += 1;
            if socket.is_full() {
                break;
            }
        }
        Ok(count)
    }

    fn put_row(&mut self, out: &mut BytesMut, writer: &BatchWriter<'_>, row: usize) -> types::Result<()> {
        match self {
            RowOutput::Nothing => Ok(()),
            RowOutput::Rows(_) => writer.data_row(out, row),
            RowOutput::Copy { format, begin, .. } => {
                out.put_u8(b'd');
                let at = out.len();
                out.put_i32(0);
                out.extend_from_slice(&begin.take().unwrap_or_default());
                format.row(out, writer, row)?;
                let length = (out.len() - at) as i32;
                out[at..at + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
                Ok(())
            }
        }
    }

    /// How values are written; `None` if none are.
    fn values(&self) -> Option<&'a RowFormat> {
        match self {
            RowOutput::Rows(values) | RowOutput::Copy { values, .. } => Some(*values),
            RowOutput::Nothing => None,
        }
    }
}

/// What became of an answer.
pub(super) struct Sent {
    pub(super) rows: u64,
    /// The limit was reached: there may be more rows.
    pub(super) may_have_more: bool,
}

/// For ever, for a clock.
const YEAR: Duration = Duration::from_secs(31_536_000);

impl StatementLimits {
    pub(super) fn new(caller: Caller, cancelled: CancellationToken, query_timeout: Duration, statement_timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        let ended = now + statement_timeout.unwrap_or(YEAR).min(YEAR);
        Self { caller, cancelled, begun: (now + query_timeout.min(YEAR)).min(ended), ended }
    }

    /// Waits for what comes before the first row.
    pub(super) async fn first<T>(&self, work: impl Future<Output = T>, socket: &mut Socket) -> Answered<T> {
        self.until(self.begun, work, socket).await
    }

    async fn until<T>(&self, time: Instant, work: impl Future<Output = T>, socket: &mut Socket) -> Answered<T> {
        self.check_cancelled()?;
        let mut work = pin!(work);
        // What needs no waiting is done before anything is made that could end it.
        if let Poll::Ready(done) = poll!(work.as_mut()) {
            return Ok(done);
        }
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.cancelled.cancelled() => Err(cancelled().into()),
            () = tokio::time::sleep_until(time) => Err(self.too_long(time).into()),
            () = socket.hung_up() => Err(MessageFailure::Gone),
        }
    }

    fn check_cancelled(&self) -> Result<(), SqlProblem> {
        if self.cancelled.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    fn too_long(&self, time: Instant) -> SqlProblem {
        let setting = if time < self.ended { "the setting serving.query_timeout" } else { "statement_timeout" };
        SqlProblem::new(QUERY_CANCELED, format!("canceling statement due to statement timeout: its time is over by {setting}"))
            .with_hint("select less, or raise the setting")
    }
}

fn cancelled() -> SqlProblem {
    SqlProblem::new(QUERY_CANCELED, "canceling statement due to user request")
}

/// Sends rows, at most `max_rows` of them (0: all).
pub(super) async fn send(
    socket: &mut Socket,
    answer: &mut StatementRows,
    output: &mut RowOutput<'_>,
    max_rows: usize,
    limits: &StatementLimits,
) -> Answered<Sent> {
    let turn = answer.turn().clone();
    let mut rows = 0;
    loop {
        if max_rows > 0 && rows == max_rows as u64 {
            return Ok(Sent { rows, may_have_more: true });
        }
        if !answer.has_row() && !fill(socket, answer, rows > 0, limits).await? {
            return Ok(Sent { rows, may_have_more: false });
        }
        let Some((batch, at_hand)) = answer.rows_at_hand() else { continue };
        let left = if max_rows == 0 { usize::MAX } else { max_rows - rows as usize };
        let count = output.put(socket, batch, at_hand.start..at_hand.end.min(at_hand.start.saturating_add(left)))?;
        answer.take(count);
        rows += count as u64;
        if socket.is_full() {
            flush(socket, &turn, limits).await?;
        }
    }
}

/// Waits until there is a row. Returns false after the last one.
async fn fill(socket: &mut Socket, answer: &mut StatementRows, has_begun: bool, limits: &StatementLimits) -> Answered<bool> {
    limits.check_cancelled()?;
    let turn = answer.turn().clone();
    let mut filling = pin!(answer.fill());
    // Most answers are a row or two that need no waiting: they go out in one piece with what ends them.
    if let Poll::Ready(more) = poll!(filling.as_mut()) {
        return Ok(more?);
    }
    // What is made already does not wait for what takes long.
    if has_begun {
        flush(socket, &turn, limits).await?;
    }
    let time = if has_begun { limits.ended } else { limits.begun };
    Ok(limits.until(time, filling, socket).await??)
}

/// A slow client is waited for; what it asked for may be cancelled meanwhile, and leaves its place to others.
async fn flush(socket: &mut Socket, turn: &Turn, limits: &StatementLimits) -> Answered {
    limits.caller.may_go_on()?;
    limits.check_cancelled()?;
    tokio::select! {
        biased;
        flushed = turn.while_sending(socket.flush()) => Ok(flushed?),
        () = limits.cancelled.cancelled() => Err(cancelled().into()),
        () = tokio::time::sleep_until(limits.ended) => Err(limits.too_long(limits.ended).into()),
    }
}

#[cfg(test)]
mod tests;
