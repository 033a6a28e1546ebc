//! The least a process in between can cost that runs on the node's executor: it reads a message whole, sends it on, and
//! does the same with the answer. It knows no HTTP and looks at nothing.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::{
    LocalExecutorBuilder, Placement,
    net::{TcpListener, TcpStream},
};

use super::echo::Sizes;

/// Is that process until a connection closes. Prints its address first.
///
/// # Errors
/// As the system says.
pub fn serve(beyond: SocketAddr, sizes: Sizes) -> io::Result<()> {
    LocalExecutorBuilder::new(Placement::Unbound).make()?.run(relay(beyond, sizes))
}

async fn relay(beyond: SocketAddr, sizes: Sizes) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let mut near = listener.accept().await?;
    let mut far = TcpStream::connect(beyond).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (mut request, mut answer) = (vec![0; sizes.request], vec![0; sizes.answer]);
    while near.read_exact(&mut request).await.is_ok() {
        far.write_all(&request).await?;
        far.read_exact(&mut answer).await?;
        near.write_all(&answer).await?;
    }
    Ok(())
}
