//! A connection to the cluster listener, from its acceptance to a node known by its certificate, or to its end.

use futures::future::poll_fn;
use glommio::net::TcpStream;
use rustls::ServerConnection;
use wasmkeep_protocol::limits::FORWARD_CONNECT;

use super::{
    Identity, Watch,
    session::{Session, TlsStream},
};
use crate::{http::answer_and_close, runtime::Sleeper, stream::Stream, tcp::Tcp};

/// Lets in a node the view knows as live by the certificate it shows; `None` for anybody else, who is told so.
pub(crate) async fn accept(
    identity: &Identity,
    watch: &Watch,
    stream: TcpStream,
    sleeper: &Sleeper,
) -> Option<TlsStream> {
    let connection = ServerConnection::new(identity.server()).ok()?;
    let (mut stream, mut session) = (Tcp::from(stream), Box::new(Session::new(connection.into())));
    let handshake = poll_fn(|cx| session.poll_handshake(&mut stream, cx));
    match sleeper.timeout(FORWARD_CONNECT, handshake).await {
        Ok(Ok(())) => {
            let (node, fingerprint) = watch.trusted(&session.fingerprint()?)?;
            Some(TlsStream::new(watch, stream, session, node, fingerprint))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection to the cluster listener was refused");
            // A close with bytes unread would be a reset, which may overtake the alert that says why.
            answer_and_close(Stream::Plain(stream), &session.last_words(), sleeper).await;
            None
        }
        Err(_) => None,
    }
}
