//! Whether the client of a connection is still there, also where its bytes have not been read.
//!
//! The HTTP library reads no further while a request is under way and bytes of the next one lie before it, so it does not
//! see the end behind them. The kernel says it all the same (`EPOLLRDHUP`, `EPOLLHUP`), without a byte being read: the
//! runtime keeps that with the socket.
//!
//! A client that has closed its sending side only (`shutdown(SHUT_WR)`) looks the same, and is taken for one that has
//! left, as the HTTP library takes it.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Of what a socket can be waited for, this stands for "the peer has closed" alone: sockets here are not registered for
/// urgent data, which is the other thing that it means.
const CLOSED: Interest = Interest::PRIORITY;

/// A client's socket as the HTTP library uses it; its [`Peer`] can be asked meanwhile.
#[derive(Debug)]
pub struct Wire(Arc<TcpStream>);

/// The client at the other end of a [`Wire`]; the default one never leaves. It does not keep the connection open.
#[derive(Clone, Default, Debug)]
pub struct Peer(Option<Weak<TcpStream>>);

/// Marks an answer for a client that has left: the connection is ended instead.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client has left")]
pub struct Left;

impl IntoResponse for Left {
    fn into_response(self) -> Response {
        // In the log alone; nginx's number.
        let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl Wire {
    /// Takes the socket over.
    pub fn new(stream: TcpStream) -> Wire {
        Wire(Arc::new(stream))
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        Peer(Some(Arc::downgrade(&self.0)))
    }
}

impl Peer {
    /// Whether the client has closed the connection or its half of it, or the connection is gone here.
    pub fn has_left(&self) -> bool {
        let Some(stream) = &self.0 else { return false };
        let Some(stream) = stream.upgrade() else { return true };
        let closed = pin!(stream.ready(CLOSED));
        closed.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Waits until [`Peer::has_left`]. To be dropped with the connection, which it keeps open.
    pub async fn left(&self) {
        let Some(stream) = &self.0 else { return std::future::pending().await };
        if let Some(stream) = stream.upgrade() {
            _ = stream.ready(CLOSED).await;
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl Wire {
    fn poll_to_write(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_to_write(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_to_write(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match socket2::SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write) {
            // The client has reset the connection.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            shut => Poll::Ready(shut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::time::Duration;
    use tokio::net::TcpListener;

    async fn connected() -> (Wire, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Wire::new(listener.accept().await.unwrap().0), client)
    }

    #[tokio::test]
    async fn who_has_closed_has_left_although_nothing_is_read() {
        for how in ["closed", "half closed", "reset"] {
            for unread in ["", "GET / HT"] {
                let (wire, mut client) = connected().await;
                let peer = wire.peer();
                client.write_all(unread.as_bytes()).unwrap();
                let left = tokio::time::timeout(Duration::from_millis(50), peer.left()).await;
                assert!(left.is_err() && !peer.has_left(), "still there: {how}, {unread:?}");
                if how == "reset" {
                    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                }
                if how == "half closed" {
                    client.shutdown(Shutdown::Write).unwrap();
                } else {
                    drop(client);
                }
                let left = tokio::time::timeout(Duration::from_secs(10), peer.left()).await;
                assert!(left.is_ok() && peer.has_left(), "{how}, {unread:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_peer_does_not_keep_its_connection_open() {
        let (wire, _client) = connected().await;
        let peer = wire.peer();
        assert!(!peer.has_left());
        drop(wire);
        assert!(peer.has_left());
        peer.left().await;
    }
}
