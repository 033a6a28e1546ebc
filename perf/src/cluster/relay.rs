//! The least a process in between can cost that runs on the node's executor: it reads a message whole, sends it on, and
//! does the same with the answer. It knows no HTTP and looks at nothing.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, anyhow};
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
pub fn serve(beyond: SocketAddr, sizes: Sizes) -> Result<()> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make();
    let executor = executor.map_err(|error| anyhow!("no executor: {error}"))?;
    executor.run(relay(beyond, sizes))
}

async fn relay(beyond: SocketAddr, sizes: Sizes) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| anyhow!("{error}"))?;
    println!("{}", listener.local_addr().map_err(|error| anyhow!("{error}"))?);
    let mut near = listener.accept().await.map_err(|error| anyhow!("{error}"))?;
    let mut far = TcpStream::connect(beyond).await.map_err(|error| anyhow!("{error}"))?;
    near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).map_err(|error| anyhow!("{error}"))?;
    let (mut request, mut answer) = (vec![0; sizes.request], vec![0; sizes.answer]);
    while near.read_exact(&mut request).await.is_ok() {
        far.write_all(&request).await?;
        far.read_exact(&mut answer).await.context("the other process ended")?;
        near.write_all(&answer).await?;
    }
    Ok(())
}
