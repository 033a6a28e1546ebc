//! Hands alarms that are due to their actors, for as long as the shard runs.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::{Either, pending, select},
    stream::FuturesUnordered,
};
use wasmkeep_protocol::limits::{ALARM_CLOCK_CHECK, ALARMS_AT_ONCE};

use crate::{Actors, World};

/// What an alarm that is due finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An actor to wake.
    Ready,
    /// An actor whose code, as this node has it, takes no alarms.
    Mute,
    /// Nothing: the actor was deleted.
    Gone,
}

/// Keeps the alarms of `actors` until the book is stopped.
pub async fn keep<W: World>(world: Rc<W>, actors: Rc<Actors<W>>) {
    let book = world.alarms();
    let mut under_way = FuturesUnordered::new();
    let mut last_ms = world.unix_ms();
    while !book.is_stopped() {
        let now_ms = world.unix_ms();
        if now_ms < last_ms {
            book.schedule().clock_was_set_back(now_ms);
        }
        last_ms = now_ms;
        while under_way.len() < ALARMS_AT_ONCE {
            let Some(id) = book.schedule().take_due(now_ms) else { break };
            match world.alarm_target(&id) {
                Target::Mute => book.schedule().put_off(&id, now_ms),
                Target::Gone => actors.note_alarm(&id, None),
                Target::Ready => {
                    let (event, answer) = world.alarm_event();
                    actors.dispatch(&id, event);
                    under_way.push(answer.map(|taken| (id, taken)));
                }
            }
        }
        let room = under_way.len() < ALARMS_AT_ONCE;
        let next_ms = book.schedule().next_ms().filter(|_| room);
        let ended = pin!(async {
            match under_way.next().await {
                Some(ended) => ended,
                None => pending().await,
            }
        });
        let time = pin!(async {
            match next_ms {
                // The wall clock may be set while this sleeps, which goes by another.
                Some(next_ms) => {
                    let wait = Duration::from_millis(next_ms.saturating_sub(now_ms));
                    world.sleep(wait.min(ALARM_CLOCK_CHECK)).await;
                }
                None => pending().await,
            }
        });
        let changed = pin!(book.changed());
        if let Either::Left(((id, taken), _)) = select(ended, select(time, changed)).await {
            let mut schedule = book.schedule();
            if taken {
                schedule.ended(&id);
            } else {
                schedule.refused(&id, world.unix_ms());
            }
        }
    }
}
