use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::Authenticator;
use arrow::array::{ArrayRef, Int64Array};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
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

/// An answer of many batches, which counts those that were made.
fn counted(made: &Arc<AtomicUsize>) -> StatementRows {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let (schema, made) = (batch.schema(), made.clone());
    let batches = stream::iter(0..BATCHES).map(move |_| {
        made.fetch_add(1, Ordering::SeqCst);
        Ok::<_, DataFusionError>(batch.clone())
    });
    StatementRows::from_batches(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

#[tokio::test]
async fn while_a_client_reads_nothing_no_more_than_one_batch_is_made() {
    let (mut client, mut server) = tokio::io::duplex(1 << 10);
    let authenticator = Authenticator::open(Arc::new(|| 0)).unwrap();
    let caller = login(&mut server, &mut BytesMut::new(), "ann", &authenticator, None).await.unwrap();
    let limits = StatementLimits::new(caller, CancellationToken::new(), YEAR, None);
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
