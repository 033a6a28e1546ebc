//! Lines on their way to stderr.
//!
//! - Owns: the queue, its bound, the thread that writes, the count of lines that were lost.
//! - Does not own: what a line says, nor which lines there are.
//!
//! Who logs never waits for who reads: a shard that blocked on a full pipe would stop all its actors while the node
//! keeps their ownership. A line for which there is no room is lost and counted.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Write},
    os::fd::AsFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait at most: some seconds of a node whose every actor complains.
pub(super) const QUEUE_BYTES_MAX: usize = 4 << 20;

/// Makes the line that says how many lines were lost where it stands.
pub(super) type LossLine = fn(u64) -> Vec<u8>;

/// The queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct LogQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    bytes_max: usize,
    filled: Condvar,
    emptied: Condvar,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Of the lines in it and of the one being written.
    bytes: usize,
    is_writing: bool,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// So many lines had no room here.
    Lost(u64),
}

impl LogQueue {
    /// A queue of `bytes_max` bytes and a thread that writes its lines to `sink`.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(
        sink: impl Write + AsFd + Send + 'static,
        bytes_max: usize,
        loss_line: LossLine,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            bytes_max,
            filled: Condvar::new(),
            emptied: Condvar::new(),
            lost: Arc::default(),
        });
        let mut writer = Writer { sink, loss_line, unsaid: 0 };
        let writing = Arc::clone(&shared);
        thread::Builder::new().name("log".into()).spawn(move || {
            loop {
                writer.write(&writing.next(), &writing.lost);
            }
        })?;
        Ok(Self(shared))
    }

    /// Lines lost since the start.
    pub(super) fn lost(&self) -> &Arc<AtomicU64> {
        &self.0.lost
    }

    /// Puts a line in, its end included. Never waits for the reader.
    pub(super) fn push(&self, line: &[u8]) {
        let mut queue = self.0.queue();
        if queue.bytes + line.len() > self.0.bytes_max {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            match queue.entries.back_mut() {
                Some(Entry::Lost(lines)) => *lines += 1,
                _ => queue.entries.push_back(Entry::Lost(1)),
            }
        } else {
            queue.bytes += line.len();
            queue.entries.push_back(Entry::Line(line.to_vec()));
        }
        drop(queue);
        self.0.filled.notify_one();
    }

    /// Waits until everything is written, or for so long.
    pub(super) fn flush(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let mut queue = self.0.queue();
        while queue.is_writing || !queue.entries.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.emptied.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is locked.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next entry; the one before it is done with.
    fn next(&self) -> Entry {
        let mut queue = self.queue();
        queue.is_writing = false;
        loop {
            if let Some(entry) = queue.entries.pop_front() {
                if let Entry::Line(line) = &entry {
                    queue.bytes -= line.len();
                }
                queue.is_writing = true;
                return entry;
            }
            self.emptied.notify_all();
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.clone())
    }
}

/// Puts what is written in as one line: `tracing` writes an event as a whole.
#[derive(Debug)]
pub(super) struct Line(LogQueue);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread's side.
struct Writer<S> {
    sink: S,
    loss_line: LossLine,
    /// Lost and not told yet.
    unsaid: u64,
}

impl<S: Write + AsFd> Writer<S> {
    fn write(&mut self, entry: &Entry, lost: &AtomicU64) {
        if let Entry::Lost(lines) = entry {
            self.unsaid += lines;
        }
        if self.unsaid > 0 && self.write_all(&(self.loss_line)(self.unsaid)).is_ok() {
            self.unsaid = 0;
        }
        if let Entry::Line(line) = entry
            && self.write_all(line).is_err()
        {
            lost.fetch_add(1, Ordering::Relaxed);
            self.unsaid += 1;
        }
    }

    /// Waits where the sink does not: another process may have made the pipe non-blocking.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.sink.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&self.sink, PollFlags::OUT)], None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    fn loss_line(lines: u64) -> Vec<u8> {
        format!("lost {lines}\n").into_bytes()
    }

    /// A queue before a pipe, and the pipe's other end.
    fn piped(bytes_max: usize, flags: OFlags) -> (LogQueue, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, flags).unwrap();
        (LogQueue::start(writer, bytes_max, loss_line).unwrap(), reader)
    }

    fn read_until(reader: &mut io::PipeReader, end: &str) -> String {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while !text.ends_with(end.as_bytes()) {
            let read = reader.read(&mut part).unwrap();
            assert!(read > 0, "the end came before {end:?}");
            text.extend_from_slice(&part[..read]);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn who_logs_does_not_wait_for_who_reads_and_what_had_no_room_is_counted_where_it_was_lost() {
        for flags in [OFlags::empty(), OFlags::NONBLOCK] {
            let (queue, mut reader) = piped(64 << 10, flags);
            let line = [&[b'x'; 999][..], b"\n"].concat();
            for _ in 0..1000 {
                queue.push(&line);
            }
            let lost = queue.lost().load(Ordering::Relaxed);
            // The queue, the pipe, and a line on its way.
            assert!((1000 - 131..1000 - 63).contains(&lost), "{lost}");
            // Once the pipe was emptied there is room for a last line.
            let mut first = vec![0; 64 * line.len()];
            reader.read_exact(&mut first).unwrap();
            queue.push(b"last\n");
            let rest = read_until(&mut reader, "last\n");
            let told = rest.lines().filter_map(|line| line.strip_prefix("lost ")?.parse::<u64>().ok());
            assert_eq!(told.sum::<u64>(), lost);
            let before_last = rest.lines().rev().nth(1).unwrap();
            assert!(before_last.starts_with("lost "), "{before_last}");
            queue.flush(Duration::from_secs(60));
            assert_eq!(queue.lost().load(Ordering::Relaxed), lost);
        }
    }

    #[test]
    fn a_stderr_that_cannot_be_written_costs_lines_and_no_panic() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = LogQueue::start(full, 1 << 20, loss_line).unwrap();
        let (gone, reader) = piped(1 << 20, OFlags::empty());
        drop(reader);
        for queue in [queue, gone] {
            for _ in 0..3 {
                queue.push(b"a line\n");
            }
            queue.flush(Duration::from_secs(60));
            assert_eq!(queue.lost().load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn an_end_waits_for_a_stuck_reader_only_so_long() {
        let (queue, _reader) = piped(1 << 20, OFlags::empty());
        queue.push(&[b'x'; 512 << 10]);
        let began = Instant::now();
        queue.flush(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
    }
}
