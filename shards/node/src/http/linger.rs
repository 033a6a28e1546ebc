//! Closing a connection so that the client gets the last answer. Owns the half-close; a socket closed with unread
//! bytes is reset by the kernel, and a reset may overtake the answer.

use crate::{runtime::Sleeper, stream::Stream};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use std::time::Duration;

/// Time a client has to take the last answer and close.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes thrown away while waiting for it; a client that sends more gets the reset.
const DISCARD_BYTES_MAX: usize = 1 << 20;

/// Writes `answer`, ends our side, and throws away what the client still sends until it closes too.
pub(crate) async fn answer_and_close(mut stream: Stream, answer: &[u8], sleeper: &Sleeper) {
    let closing = async {
        if !answer.is_empty() && stream.write_all(answer).await.is_err() {
            return;
        }
        if stream.close().await.is_err() {
            return;
        }
        let mut discarded = 0;
        let mut bytes = [0; 4096];
        while discarded < DISCARD_BYTES_MAX {
            match stream.read(&mut bytes).await {
                Ok(len @ 1..) => discarded += len,
                _ => return,
            }
        }
    };
    let _ = sleeper.timeout(LINGER, closing).await;
}
