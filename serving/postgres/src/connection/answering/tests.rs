use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::Authenticator;
use arrow::array::{ArrayRef, Int64Array};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, stream};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::*;
use crate::connection::Buffers;
use crate::login::login;
use crate::rows::{BINARY, Zone};

const BATCHES: usize = 20;
const ROWS: usize = 8_192;
/// Of a row: its kind, its length, the number of its columns, and one of eight bytes with its length.
const ROW_BYTES: usize = 1 + 4 + 2 + 4 + 8;

fn numbers(rows: usize) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

fn answer_of(batches: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Send + 'static) -> StatementRows {
    StatementRows::from_batches(Box::pin(RecordBatchStreamAdapter::new(numbers(0).schema(), batches)))
}

async fn limits() -> StatementLimits {
    let authenticator = Authenticator::open(Arc::new(|| 0)).unwrap();
    let (_, mut server) = tokio::io::duplex(1 << 10);
    let caller = login(&mut server, &mut BytesMut::new(), "ann", &authenticator, None).await.unwrap();
    StatementLimits::new(caller, CancellationToken::new(), YEAR, None)
}

/// An answer of many batches, which counts those that were made.
fn counted(made: &Arc<AtomicUsize>) -> StatementRows {
    let (batch, made) = (numbers(ROWS), made.clone());
    let batches = stream::iter(0..BATCHES).map(move |_| {
        made.fetch_add(1, Ordering::SeqCst);
        Ok::<_, DataFusionError>(batch.clone())
    });
    answer_of(batches)
}

#[tokio::test]
async fn an_answer_that_needs_no_waiting_is_sent_with_what_ends_it() {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let mut answer = answer_of(stream::iter([Ok(numbers(1)), Ok(numbers(0)), Ok(numbers(2))]));
    let format = RowFormat { types: answer.types.clone(), formats: vec![BINARY], zone: Zone::default() };
    let mut socket = Socket::new(Box::new(server), Buffers::default());
    let sent = send(&mut socket, &mut answer, &mut RowOutput::Rows(&format), 0, &limits().await).await;
    assert_eq!(sent.ok().map(|sent| (sent.rows, sent.may_have_more)), Some((3, false)));
    assert_eq!(socket.out.len(), 3 * ROW_BYTES);
    let early = timeout(Duration::from_millis(50), client.read_u8()).await;
    assert!(early.is_err(), "a part was sent before");
}

#[tokio::test]
async fn rows_do_not_wait_for_what_takes_long() {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let mut answer = answer_of(stream::iter([Ok(numbers(3))]).chain(stream::pending()));
    let format = RowFormat { types: answer.types.clone(), formats: vec![BINARY], zone: Zone::default() };
    let mut socket = Socket::new(Box::new(server), Buffers::default());
    let (mut output, limits) = (RowOutput::Rows(&format), limits().await);
    let sending = send(&mut socket, &mut answer, &mut output, 0, &limits);
    let mut rows = [0; 3 * ROW_BYTES];
    tokio::select! {
        _ = sending => panic!("there are more rows"),
        read = client.read_exact(&mut rows) => assert_eq!(read.unwrap(), rows.len()),
    }
}

#[tokio::test]
async fn while_a_client_reads_nothing_no_more_than_one_batch_is_made() {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let limits = limits().await;
    let made = Arc::new(AtomicUsize::new(0));
    let mut answer = counted(&made);
    let format = RowFormat { types: answer.types.clone(), formats: vec![BINARY], zone: Zone::default() };
    let mut socket = Socket::new(Box::new(server), Buffers::default());
    let reading = {
        let mut output = RowOutput::Rows(&format);
        let mut sending = pin!(send(&mut socket, &mut answer, &mut output, 0, &limits));
        assert!(timeout(Duration::from_millis(200), &mut sending).await.is_err(), "it waits for its client");
        assert_eq!(made.load(Ordering::SeqCst), 1);
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.map(|_| read.len())
        });
        let sent = sending.await.ok().map(|sent| (sent.rows, sent.may_have_more));
        assert_eq!(sent, Some(((BATCHES * ROWS) as u64, false)));
        reading
    };
    assert!(socket.flush().await.is_ok());
    socket.close().await;
    assert_eq!(reading.await.unwrap().unwrap(), BATCHES * ROWS * ROW_BYTES);
}
