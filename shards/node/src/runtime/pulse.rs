//! A shard's pulse: when it polls guest work, for whom, and for how long.
//!
//! Owns the marks that the ticker and the watchdog read from their own thread and the stall detector that the
//! shard runs on itself. Does not own the ticker's thread.
//!
//! The marks are a sequence lock: the sequence is odd while a poll is under way, and the label's words are written
//! before it turns odd. Entering costs a few plain stores, one fence and one clock reading; nothing allocates.

use super::ticker::TickerState;
use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Bytes of a label that can be read from another thread; longer ones are cut.
const LABEL_BYTES: usize = 128;
const LABEL_WORDS: usize = LABEL_BYTES / 8;

/// Who holds the core, in a form that another thread can read while it changes. Cheap to clone; make one per
/// actor, not one per event.
#[derive(Debug, Clone)]
pub struct Label {
    words: Rc<[u64]>,
    len: usize,
}

impl Label {
    /// At most 128 bytes of `text` are kept.
    pub fn new(text: &str) -> Label {
        let len = text.floor_char_boundary(LABEL_BYTES);
        let words = text.as_bytes()[..len]
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        Label { words, len }
    }

    /// The text kept.
    pub fn text(&self) -> String {
        text_of(&self.words, self.len)
    }
}

fn text_of(words: &[u64], len: usize) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One shard's marks, readable from any thread.
#[derive(Debug)]
#[repr(align(128))]
pub struct Beat {
    /// Odd while a poll is under way. Written by the shard only.
    sequence: AtomicU64,
    label_len: AtomicU64,
    label: [AtomicU64; LABEL_WORDS],
    busy_ns: AtomicU64,
    stalls: AtomicU64,
    /// A tick's byte was written and the shard has not read it yet.
    pub(super) unread_tick: AtomicBool,
    ticks: AtomicU64,
    silences: AtomicU64,
}

impl Beat {
    pub(super) fn new() -> Beat {
        Beat {
            sequence: AtomicU64::new(0),
            label_len: AtomicU64::new(0),
            label: [const { AtomicU64::new(0) }; LABEL_WORDS],
            busy_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            unread_tick: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
            silences: AtomicU64::new(0),
        }
    }

    /// Time spent in polls since the start.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Ordering::Relaxed))
    }

    /// Polls that held the core longer than the stall limit.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// Ticks this shard was sent.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Times the watchdog found this shard silent.
    pub fn silences(&self) -> u64 {
        self.silences.load(Ordering::Relaxed)
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    pub(super) fn count_tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_silence(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }

    /// Label of the poll under way, if one is and did not change while it was read.
    pub fn held_by(&self) -> Option<String> {
        let before = self.sequence.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            return None;
        }
        let len = self.label_len.load(Ordering::Relaxed) as usize;
        let words: Vec<u64> = self.label.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then(|| text_of(&words, len.min(LABEL_BYTES)))
    }
}

/// The shard's own handle on its marks. Lives on the shard's thread.
#[derive(Debug)]
pub struct Pulse {
    shard: usize,
    beat: Arc<Beat>,
    ticker: Arc<TickerState>,
    stall_after: Duration,
    depth: Cell<u32>,
}

impl Pulse {
    pub(super) fn new(
        shard: usize,
        beat: Arc<Beat>,
        ticker: Arc<TickerState>,
        stall_after: Duration,
    ) -> Pulse {
        Pulse { shard, beat, ticker, stall_after, depth: Cell::new(0) }
    }

    /// Marks that a poll of work that may hold the core begins; dropping the guard marks its end. Nested guards
    /// count as the outermost. Wakes the ticker if it is parked.
    pub fn enter<'a>(&'a self, label: &'a Label) -> Entered<'a> {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth > 0 {
            return Entered { pulse: self, outermost: None };
        }
        let beat = &*self.beat;
        let sequence = beat.sequence.load(Ordering::Relaxed);
        // The label of the last poll may still be being read: its words change only after its sequence ended.
        fence(Ordering::Release);
        for (slot, word) in beat.label.iter().zip(label.words.iter()) {
            slot.store(*word, Ordering::Relaxed);
        }
        beat.label_len.store(label.len as u64, Ordering::Relaxed);
        beat.sequence.store(sequence + 1, Ordering::Release);
        // Against the ticker's "parked, then look again": either it sees this sequence or we see its flag.
        fence(Ordering::SeqCst);
        self.ticker.wake_if_parked();
        Entered { pulse: self, outermost: Some((label, Instant::now())) }
    }

    /// Runs `future` with each of its polls marked as `label`'s.
    pub fn hold<F: Future>(self: &Rc<Self>, label: Label, future: F) -> Held<F> {
        Held { pulse: self.clone(), label, future }
    }

    /// The marks, for metrics.
    pub fn beat(&self) -> &Arc<Beat> {
        &self.beat
    }

    fn leave(&self, label: &Label, since: Instant) {
        let held = since.elapsed();
        let beat = &*self.beat;
        beat.busy_ns.store(
            beat.busy_ns.load(Ordering::Relaxed).wrapping_add(held.as_nanos() as u64),
            Ordering::Relaxed,
        );
        let sequence = beat.sequence.load(Ordering::Relaxed);
        beat.sequence.store(sequence + 1, Ordering::Release);
        if held >= self.stall_after {
            beat.stalls.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                shard = self.shard,
                held_by = label.text(),
                held_ms = held.as_millis() as u64,
                "a poll held its core too long"
            );
        }
    }
}

/// A poll under way. See [`Pulse::enter`].
#[derive(Debug)]
pub struct Entered<'a> {
    pulse: &'a Pulse,
    outermost: Option<(&'a Label, Instant)>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.pulse.depth.set(self.pulse.depth.get() - 1);
        if let Some((label, since)) = self.outermost {
            self.pulse.leave(label, since);
        }
    }
}

/// A future whose polls are marked. See [`Pulse::hold`].
#[derive(Debug)]
pub struct Held<F> {
    pulse: Rc<Pulse>,
    label: Label,
    future: F,
}

impl<F: Future> Future for Held<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned with `self` and never moved out; the other fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let _entered = this.pulse.enter(&this.label);
        future.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse() -> Pulse {
        Pulse::new(0, Arc::new(Beat::new()), Arc::new(TickerState::default()), Duration::from_secs(3600))
    }

    #[test]
    fn the_label_is_readable_only_while_a_poll_is_under_way() {
        let pulse = pulse();
        assert_eq!(pulse.beat().held_by(), None);
        let (outer, inner) = (Label::new("actor counter/alice"), Label::new("sql"));
        let entered = pulse.enter(&outer);
        let nested = pulse.enter(&inner);
        assert_eq!(pulse.beat().held_by().as_deref(), Some("actor counter/alice"));
        drop(nested);
        assert_eq!(pulse.beat().held_by().as_deref(), Some("actor counter/alice"));
        drop(entered);
        assert_eq!(pulse.beat().held_by(), None);
        assert_eq!(pulse.beat().sequence(), 2);
    }

    #[test]
    fn a_shorter_label_hides_the_longer_one_before_it() {
        let pulse = pulse();
        drop(pulse.enter(&Label::new(&"x".repeat(100))));
        let short = Label::new("short");
        let _entered = pulse.enter(&short);
        assert_eq!(pulse.beat().held_by().as_deref(), Some("short"));
    }

    #[test]
    fn a_long_label_is_cut_between_characters() {
        let text = "é".repeat(100);
        assert_eq!(Label::new(&text).text(), "é".repeat(64));
        let odd = format!("a{text}");
        assert_eq!(Label::new(&odd).text(), format!("a{}", "é".repeat(63)));
        assert_eq!(Label::new("").text(), "");
    }

    #[test]
    fn a_reader_on_another_thread_never_sees_a_mixed_label() {
        let pulse = pulse();
        let beat = pulse.beat().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut seen = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    if let Some(label) = beat.held_by() {
                        let first = label.as_bytes()[0];
                        assert!(label.bytes().all(|byte| byte == first), "{label}");
                        seen += 1;
                    }
                }
                seen
            }
        });
        let labels = [Label::new(&"a".repeat(96)), Label::new(&"b".repeat(33)), Label::new(&"c".repeat(128))];
        for round in 0..200_000 {
            let _entered = pulse.enter(&labels[round % 3]);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    }
}
