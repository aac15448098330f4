use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::*;

/// What its user did with a stream.
#[derive(Default)]
struct Calls {
    reads: AtomicUsize,
    flushes: AtomicUsize,
}

/// A stream that counts the reads which returned something, and the flushes.
struct Counted {
    stream: DuplexStream,
    calls: Arc<Calls>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.calls.reads.fetch_add(usize::from(read.is_ready()), Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.flushes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn connected() -> (DuplexStream, Socket, Arc<Calls>) {
    let (client, stream) = tokio::io::duplex(64 << 10);
    let calls = Arc::new(Calls::default());
    let counted = Counted { stream, calls: calls.clone() };
    (client, Socket::new(Box::new(counted), Buffers::default()), calls)
}

#[tokio::test]
async fn what_asks_a_statement_is_read_at_once() {
    // Bind with a text, Execute, Close and Sync.
    let mut asked = b"B\0\0\0\x23\0statement\0\0\0\0\x01\0\0\0\x0aa-key-here\0\0".to_vec();
    asked.extend(b"E\0\0\0\x09\0\0\0\0\0C\0\0\0\x06P\0S\0\0\0\x04");
    let (mut client, mut socket, calls) = connected();
    for statement in 1..=200 {
        client.write_all(&asked).await.unwrap();
        for _ in 0..4 {
            assert!(socket.message().await.is_ok_and(|message| message.is_ok()));
        }
        assert_eq!(calls.reads.load(Ordering::Relaxed), statement);
    }
    assert!(socket.read.capacity() <= 4 * READ_BYTES);
}

#[tokio::test]
async fn what_was_flushed_is_not_flushed_again() {
    let (_client, mut socket, calls) = connected();
    for _ in 0..3 {
        assert!(socket.flush().await.is_ok());
    }
    assert_eq!(calls.flushes.load(Ordering::Relaxed), 1);
    socket.out.put_u8(b'Z');
    for _ in 0..3 {
        assert!(socket.flush().await.is_ok());
    }
    assert_eq!(calls.flushes.load(Ordering::Relaxed), 2);
}
