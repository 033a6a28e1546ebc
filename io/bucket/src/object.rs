//! An object as it is read: what is known of it, and its body as it arrives.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, LocalBoxStream};

use crate::outcome::{ReadError, Version};

/// What the store says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The state that was read.
    pub version: Version,
    /// Bytes of the whole object.
    pub size: u64,
    /// Last write by the store's clock, in milliseconds since 1970. For display and ages, never for ordering.
    pub modified_ms: u64,
}

/// An object whose body is still arriving.
#[derive(Debug)]
pub struct Object {
    /// What the store says of it.
    pub meta: Meta,
    /// The bytes of the object that `body` brings.
    pub range: Range<u64>,
    /// Those bytes.
    pub body: Body,
}

impl Object {
    /// The whole body, refused when it has more than `limit` bytes, and an error unless every promised byte came.
    pub async fn bytes(mut self, limit: u64) -> Result<Bytes, ReadError> {
        let size = self.range.end - self.range.start;
        if size > limit {
            return Err(ReadError::TooLarge { size, limit });
        }
        let Some(first) = self.body.next().await.transpose()? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.body.next().await.transpose()? else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity(size as usize);
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.body.next().await.transpose()? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }
}

/// The bytes of an object in the order they are stored.
///
/// Ends with an error, and never quietly, when fewer or more bytes arrive than the reply promised.
pub struct Body(LocalBoxStream<'static, Result<Bytes, ReadError>>);

impl Body {
    /// A body that is already here.
    pub fn from_bytes(bytes: Bytes) -> Self {
        let chunk = (!bytes.is_empty()).then_some(Ok(bytes));
        Self(stream::iter(chunk).boxed_local())
    }

    /// A body of exactly `length` bytes that arrives in `chunks`.
    pub fn counted(
        length: u64,
        chunks: impl futures::Stream<Item = Result<Bytes, ReadError>> + 'static,
    ) -> Self {
        let state = Some((length, chunks.boxed_local()));
        let counted = stream::unfold(state, |state| async move {
            let (left, mut chunks) = state?;
            match chunks.next().await {
                Some(Ok(chunk)) if chunk.len() as u64 <= left => {
                    let left = left - chunk.len() as u64;
                    Some((Ok(chunk), Some((left, chunks))))
                }
                Some(Ok(_)) => Some((Err(wrong_length("more")), None)),
                Some(Err(error)) => Some((Err(error), None)),
                None if left > 0 => Some((Err(wrong_length("fewer")), None)),
                None => None,
            }
        });
        Self(counted.boxed_local())
    }

    /// The same bytes; `kept` is dropped once the last of them came, the body failed or it was dropped.
    pub fn holding<T: 'static>(self, kept: T) -> Self {
        let state = Some((self.0, kept));
        let held = stream::unfold(state, |state| async move {
            let (mut chunks, kept) = state?;
            match chunks.next().await? {
                Ok(chunk) => Some((Ok(chunk), Some((chunks, kept)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Self(held.boxed_local())
    }

    /// The next bytes; `None` once all of them came.
    pub async fn next(&mut self) -> Option<Result<Bytes, ReadError>> {
        self.0.next().await
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

fn wrong_length(which: &str) -> ReadError {
    ReadError::Malformed(format!("the body has {which} bytes than the reply said"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;

    fn object(length: u64, chunks: &[&'static [u8]]) -> Object {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk))).collect();
        let meta = Meta { version: Version::new("v").unwrap(), size: length, modified_ms: 0 };
        Object { meta, range: 0..length, body: Body::counted(length, stream::iter(chunks)) }
    }

    #[test]
    fn a_body_of_another_length_is_an_error_and_never_a_shorter_object() {
        assert_eq!(block_on(object(4, &[b"ab", b"cd"]).bytes(9)), Ok(Bytes::from_static(b"abcd")));
        assert_eq!(block_on(object(0, &[]).bytes(9)), Ok(Bytes::new()));
        for (length, chunks) in [(5, &[&b"ab"[..], b"cd"]), (3, &[b"ab", b"cd"]), (2, &[b"ab", b"cd"])] {
            let read = block_on(object(length, chunks).bytes(9));
            assert!(matches!(read, Err(ReadError::Malformed(_))), "{length}: {read:?}");
        }
        assert!(matches!(block_on(object(1, &[]).bytes(9)), Err(ReadError::Malformed(_))));
    }

    #[test]
    fn a_body_lets_go_of_what_it_holds_at_its_end() {
        for (length, ends) in [(4, true), (5, false)] {
            let held = std::rc::Rc::new(());
            let mut body = object(length, &[b"ab", b"cd"]).body.holding(std::rc::Rc::clone(&held));
            for _ in 0..2 {
                assert!(matches!(block_on(body.next()), Some(Ok(_))));
                assert_eq!(std::rc::Rc::strong_count(&held), 2);
            }
            assert_eq!(block_on(body.next()).is_none(), ends);
            assert_eq!(std::rc::Rc::strong_count(&held), 1);
        }
    }

    #[test]
    fn more_than_the_caller_takes_is_refused_before_it_is_read() {
        let read = block_on(object(4, &[b"abcd"]).bytes(3));
        assert_eq!(read, Err(ReadError::TooLarge { size: 4, limit: 3 }));
    }
}
