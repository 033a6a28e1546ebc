//! What a request to another node carries.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use crate::http::{BodyError, RequestBody};

/// The body of a request to another node.
pub(crate) enum PeerBody {
    /// A client's, as it comes.
    Client(RequestBody),
    /// A call's, whole.
    Whole(Full<Bytes>),
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Client(body) => Pin::new(body).poll_frame(cx),
            Self::Whole(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Client(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
        }
    }
}
