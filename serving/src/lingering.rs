//! Closes connections so that the other side reads all that was written. A socket that is closed while bytes lie in it
//! that nobody has read resets its connection, and with it goes what the other side has not read yet: the end of an
//! answer over HTTP/2, whose reader says all the time how much it has taken.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long the other side may take to close its half too.
const LINGER: Duration = Duration::from_secs(5);

/// A stream that, when it is shut down, is read until the other side ends.
pub struct Lingering<S> {
    stream: S,
    /// Since nothing more is written: until when it is read.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Lingering<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, until: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.until.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let until = this.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut unread = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut unread);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return until.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn all_that_was_written_is_read_by_a_side_that_still_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(&[1; 10_000]).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let closing = tokio::spawn(async move {
            let mut socket = Lingering::new(socket);
            socket.write_all(&[2; 100_000]).await.unwrap();
            socket.shutdown().await.unwrap();
        });
        let mut first = vec![0; 50_000];
        client.read_exact(&mut first).await.unwrap();
        client.write_all(&[1; 10_000]).await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), 50_000);
        assert!(!closing.is_finished());
        drop(client);
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn a_side_that_never_ends_is_not_waited_for_any_longer() {
        let (_client, stream) = tokio::io::duplex(16);
        let until = Some(Box::pin(tokio::time::sleep(Duration::ZERO)));
        Lingering { stream, until }.shutdown().await.unwrap();
    }
}
