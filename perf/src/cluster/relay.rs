//! The least a process in between can cost that runs on the node's executor: it reads a message, sends it on, and does
//! the same with the answer. It knows no HTTP and looks at nothing.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::{
    LocalExecutorBuilder, Placement,
    net::{TcpListener, TcpStream},
};

use super::echo::MESSAGE_BYTES_MAX;
use crate::println;

/// Is that process until a connection closes. Prints its address first.
///
/// # Errors
/// As the system says.
pub fn serve(beyond: SocketAddr) -> io::Result<()> {
    LocalExecutorBuilder::new(Placement::Unbound).make()?.run(async {
        let (near, far) = connections(beyond).await?;
        relay(near, far).await
    })
}

/// The connection of whoever sends, once there is one, and one to the process beyond.
pub(super) async fn connections(beyond: SocketAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let near = listener.accept().await?;
    let far = TcpStream::connect(beyond).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

async fn relay(mut near: TcpStream, mut far: TcpStream) -> io::Result<()> {
    while pass(&mut near, &mut far).await? && pass(&mut far, &mut near).await? {}
    Ok(())
}

/// Passes a message on; `false`: there is none any more.
async fn pass(from: &mut TcpStream, to: &mut TcpStream) -> io::Result<bool> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let len = from.read(&mut bytes).await?;
    to.write_all(&bytes[..len]).await?;
    Ok(len > 0)
}
