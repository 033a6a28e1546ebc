//! The body of an answer from another node. Owns the connection it comes on until it is whole.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::FutureExt;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{Error, body::Incoming};

use super::{Idle, connection::Connection, target::Place};
use crate::http::ResponseBody;

/// The body of an answer from another node.
pub(crate) enum AnswerBody {
    /// It came with its head.
    Whole(Bytes),
    /// It still comes.
    Coming(Box<Coming>),
}

/// A body under way.
pub(crate) struct Coming {
    /// What came with the head.
    first: Option<Result<Frame<Bytes>, Error>>,
    incoming: Incoming,
    /// Until the body is whole.
    connection: Option<(Place, Connection)>,
    idle: Idle,
}

impl AnswerBody {
    /// Takes what is there already. A connection that is done with its answer is kept for the next request.
    pub(super) fn of(
        answer: Response<Incoming>,
        place: Place,
        connection: Connection,
        idle: &Idle,
    ) -> Response<Self> {
        answer.map(|mut incoming| {
            let first = incoming.frame().now_or_never().flatten();
            match first {
                None if incoming.is_end_stream() => {
                    idle.keep(place, connection);
                    Self::Whole(Bytes::new())
                }
                Some(Ok(frame)) if incoming.is_end_stream() && frame.is_data() => {
                    idle.keep(place, connection);
                    Self::Whole(frame.into_data().unwrap_or_default())
                }
                first => {
                    let (connection, idle) = (Some((place, connection)), idle.clone());
                    Self::Coming(Box::new(Coming { first, incoming, connection, idle }))
                }
            }
        })
    }
}

impl From<AnswerBody> for ResponseBody {
    fn from(body: AnswerBody) -> Self {
        match body {
            AnswerBody::Whole(bytes) => Self::full(bytes),
            AnswerBody::Coming(body) => Self::stream(*body),
        }
    }
}

impl Coming {
    /// Its end has come: the connection is free.
    fn finish(&mut self) {
        if let Some((place, connection)) = self.connection.take() {
            self.idle.keep(place, connection);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Self::Coming(body) => Pin::new(body).poll_frame(cx),
        }
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(first));
        }
        let mut polled = Pin::new(&mut this.incoming).poll_frame(cx);
        if let (Poll::Pending, Some((_, connection))) = (&polled, &mut this.connection) {
            connection.drive(cx);
            polled = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        if matches!(polled, Poll::Ready(None)) || this.incoming.is_end_stream() {
            this.finish();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first =
            self.first.as_ref().and_then(|first| first.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        match self.incoming.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + first as u64),
            None => SizeHint::new(),
        }
    }
}
