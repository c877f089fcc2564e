//! Memory for the bodies of requests: what has arrived of them is counted, also of those whose length was not told, until
//! they have been dealt with.
//!
//! The rest of a body that finds no room is thrown away as it comes, and its request answered 503. What a client says that
//! it will send weighs nothing: else those that say so and send nothing would keep out the others.

use crate::budget::{Budget, Room, SMALL};
use crate::error::{CallError, Problem};
use crate::routes::Caller;
use crate::state::Shared;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// Each byte is there twice: as it came in, and in what is made of it.
const COPIES: usize = 2;

/// Frames are handed on together up to this size. A client may send each byte in a frame of its own, and whoever collects
/// them needs more for the frame than for the byte.
const PARCEL: usize = 64 << 10;

/// Room of a request's body; whoever still has something of the body holds it, too.
#[derive(Clone, Debug)]
pub struct Upload(Arc<Mutex<Taken>>);

#[derive(Debug)]
struct Taken {
    room: Option<Room>,
    /// The rest of a body for which there was no room.
    refused: Option<Body>,
}

impl Upload {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the body of a request, unless it is known to be small.
pub async fn count(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    if is_small(request.headers()) {
        return next.run(request).await;
    }
    let upload = Upload(Arc::new(Mutex::new(Taken { room: None, refused: None })));
    if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
        caller.upload = Some(upload.clone());
    }
    let (budget, counted) = (app.uploads.clone(), upload.clone());
    let request = request.map(|inner| {
        Body::new(Counted { inner, budget, upload: counted, seen: 0, parcel: BytesMut::new(), ended: false })
    });
    let response = next.run(request).await;
    let refused = upload.taken().refused.take();
    if let Some(mut rest) = refused {
        // A client that is cut off while it sends does not see its answer.
        while let Some(Ok(_)) = rest.frame().await {}
        return Problem::from(CallError::NoRoom).into_response();
    }
    response
}

/// Whether it has no body, or one whose length was told and weighs nothing.
fn is_small(headers: &HeaderMap) -> bool {
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    !headers.contains_key(TRANSFER_ENCODING) && told.unwrap_or(0) <= SMALL
}

struct Counted {
    inner: Body,
    budget: Budget,
    upload: Upload,
    seen: usize,
    /// What has arrived and has not been handed on.
    parcel: BytesMut,
    ended: bool,
}

impl Counted {
    fn arrived(&mut self, bytes: usize) -> Result<(), axum::Error> {
        self.seen += bytes;
        if self.seen <= SMALL {
            return Ok(());
        }
        let mut taken = self.upload.taken();
        let needed = COPIES * self.seen;
        let fits = match &mut taken.room {
            Some(room) => room.must_grow(needed - room.bytes()),
            none => {
                *none = self.budget.weigh(needed, false);
                none.is_some()
            }
        };
        if fits {
            return Ok(());
        }
        // Whoever collects the body drops what it has, too: others need it.
        self.parcel = BytesMut::new();
        taken.room = None;
        taken.refused = Some(std::mem::take(&mut self.inner));
        Err(axum::Error::new(CallError::NoRoom))
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.parcel.len() < PARCEL && !self.ended {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? {
                // Nobody reads trailers.
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.arrived(data.len())?;
                        self.parcel.extend_from_slice(&data);
                    }
                }
                None => self.ended = true,
            }
        }
        let parcel = std::mem::take(&mut self.parcel);
        Poll::Ready((!parcel.is_empty()).then(|| Ok(Frame::data(parcel.freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.parcel.is_empty() && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, held) = (self.inner.size_hint(), self.parcel.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint.set_lower(inner.lower() + held);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_that_it_is_short_is_not_counted_and_what_says_nothing_is() {
        let small = |headers: &[(axum::http::HeaderName, &str)]| {
            is_small(&headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect())
        };
        assert!(small(&[]) && small(&[(CONTENT_LENGTH, "65536")]));
        assert!(!small(&[(CONTENT_LENGTH, "65537")]));
        assert!(!small(&[(TRANSFER_ENCODING, "chunked")]));
        assert!(!small(&[(TRANSFER_ENCODING, "chunked"), (CONTENT_LENGTH, "1")]));
    }
}
