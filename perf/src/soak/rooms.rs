//! Chat rooms: two sockets in each, and every message is to reach both once, in the order in which it was sent.

use std::{
    io::ErrorKind,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tungstenite::{Message, WebSocket, client};

use super::{Share, Tally};

/// Between two rounds, in each of which some rooms speak.
const ROUND: Duration = Duration::from_millis(50);

/// Rounds in which a room speaks once: it sleeps in between.
const ROUNDS_SILENT: u64 = 60;

/// Time for the last messages to arrive.
const DRAIN: Duration = Duration::from_secs(60);

const NAMES: [&str; 2] = ["a", "b"];

/// One socket, and the last number it heard of each speaker.
struct Ear {
    socket: WebSocket<TcpStream>,
    heard: [u64; 2],
}

struct Room {
    number: u32,
    ears: [Ear; 2],
    said: [u64; 2],
}

/// Opens the rooms and lets them talk.
///
/// # Errors
/// When the node cannot be reached at all.
pub fn run(share: &Share) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut rooms = share.actors().map(|number| enter(share, number)).collect::<Result<Vec<_>>>()?;
    let mut round = 0;
    while Instant::now() < share.until {
        round += 1;
        for room in rooms.iter_mut().filter(|room| (u64::from(room.number) + round) % ROUNDS_SILENT == 0) {
            room.speak(&mut tally)?;
        }
        for room in &mut rooms {
            room.listen(&mut tally)?;
        }
        thread::sleep(ROUND);
    }
    let deadline = Instant::now() + DRAIN;
    while rooms.iter().any(|room| !room.is_done()) && Instant::now() < deadline {
        for room in &mut rooms {
            room.listen(&mut tally)?;
        }
        thread::sleep(ROUND);
    }
    for room in &rooms {
        for (ear, name) in room.ears.iter().zip(NAMES) {
            if ear.heard != room.said {
                tally
                    .wrong
                    .push(format!("room {}: {name} heard {:?} of {:?}", room.number, ear.heard, room.said));
            }
        }
    }
    Ok(tally)
}

fn enter(share: &Share, number: u32) -> Result<Room> {
    let open = |name: &str| -> Result<Ear> {
        let stream = TcpStream::connect(share.address)?;
        stream.set_read_timeout(Some(DRAIN))?;
        let url = format!("ws://{}/actor/chat/room-{number}?name={name}", share.address);
        let (socket, _) = client(url, stream).map_err(|error| anyhow::anyhow!("{error}"))?;
        socket.get_ref().set_nonblocking(true)?;
        Ok(Ear { socket, heard: [0; 2] })
    };
    let ears = [
        open(NAMES[0]).with_context(|| format!("room {number}"))?,
        open(NAMES[1]).with_context(|| format!("room {number}"))?,
    ];
    Ok(Room { number, ears, said: [0; 2] })
}

impl Room {
    fn speak(&mut self, tally: &mut Tally) -> Result<()> {
        for (speaker, ear) in self.ears.iter_mut().enumerate() {
            self.said[speaker] += 1;
            let text = self.said[speaker].to_string();
            match ear.socket.send(Message::text(text)) {
                Ok(()) => tally.messages += 1,
                Err(error) => bail!("room {}: {error}", self.number),
            }
        }
        Ok(())
    }

    fn listen(&mut self, tally: &mut Tally) -> Result<()> {
        for (ear, name) in self.ears.iter_mut().zip(NAMES) {
            loop {
                match ear.socket.read() {
                    Ok(Message::Text(text)) => {
                        if let Some((speaker, number)) = said(&text) {
                            tally.received += 1;
                            let expected = ear.heard[speaker] + 1;
                            if number != expected {
                                let place = self.number;
                                tally.wrong.push(format!(
                                    "room {place}: {name} heard {} say {number}, not {expected}",
                                    NAMES[speaker]
                                ));
                            }
                            ear.heard[speaker] = number;
                        }
                    }
                    Ok(_) => {}
                    Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => bail!("room {}, {name}: {error}", self.number),
                }
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ears.iter().all(|ear| ear.heard == self.said)
    }
}

/// Who said which number, of what a room sends.
fn said(text: &str) -> Option<(usize, u64)> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let line = value.get("said")?;
    let speaker = NAMES.iter().position(|name| line["who"] == *name)?;
    Some((speaker, line["text"].as_str()?.parse().ok()?))
}
