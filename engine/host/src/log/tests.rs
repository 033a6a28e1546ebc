use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tracing::{Event, Level, Metadata, Subscriber, field, span};

use super::*;

/// Keeps what is logged on this thread.
#[derive(Default)]
struct Recorder(Mutex<Vec<(Level, String)>>);

struct Fields(String);

impl field::Visit for Fields {
    fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "actor"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().expect("no panic").push((*event.metadata().level(), fields.0.trim_end().to_owned()));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn recorded(work: impl FnOnce(&Arc<ActorLog>)) -> Vec<(Level, String)> {
    let recorder = Arc::new(Recorder::default());
    let log = ActorLog::new(
        Arc::new(Identity {
            tenant: "t".into(),
            class: "c".into(),
            name: "n".into(),
            node: "x".into(),
            generation: 0,
            version: "v".into(),
        }),
        None,
    );
    tracing::subscriber::with_default(Arc::clone(&recorder), || work(&log));
    std::mem::take(&mut *recorder.0.lock().expect("no panic"))
}

fn message(text: &str) -> String {
    format!("message={text} class=\"c\" name=\"n\"")
}

#[test]
fn lines_are_logged_whole_with_the_actors_name() {
    let lines = recorded(|log| {
        log.write(Stream::Out, b"one\ntwo, in ");
        log.write(Stream::Err, b"alas\r\n");
        log.write(Stream::Out, b"parts\n\nlast");
        log.flush();
        log.flush();
    });
    let expected = [
        (Level::INFO, message("one")),
        (Level::WARN, message("alas")),
        (Level::INFO, message("two, in parts")),
        (Level::INFO, message("")),
        (Level::INFO, message("last")),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_line_without_end_is_cut_into_bounded_lines() {
    let lines = recorded(|log| {
        for _ in 0..3 {
            log.write(Stream::Out, &vec![b'x'; LINE_BYTES_MAX - 1]);
        }
        log.flush();
    });
    let lengths: Vec<usize> = lines.iter().map(|(_, line)| line.matches('x').count()).collect();
    assert_eq!(lengths, [LINE_BYTES_MAX, LINE_BYTES_MAX, LINE_BYTES_MAX - 3]);
}

#[test]
fn bytes_that_are_no_text_are_shown_as_such() {
    let lines = recorded(|log| log.write(Stream::Out, b"a\xffb\n"));
    assert_eq!(lines, [(Level::INFO, message("a\u{fffd}b"))]);
}

#[test]
fn a_noisy_actor_is_limited_and_the_loss_is_counted() {
    let start = Instant::now();
    let mut budget = Budget::new(start);
    for _ in 0..LINES_PER_SECOND {
        assert_eq!(budget.take(start), Some(0));
    }
    for _ in 0..5 {
        assert_eq!(budget.take(start + Duration::from_millis(999)), None);
    }
    assert_eq!(budget.take(start + Duration::from_secs(1)), Some(5));
    assert_eq!(budget.take(start + Duration::from_secs(1)), Some(0));
}
