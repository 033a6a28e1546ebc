use super::*;

const RULES: Rules = Rules {
    message_bytes_max: 1000,
    queue_bytes_max: 1000,
    ping_after: Duration::from_secs(30),
    close_within: Duration::from_secs(5),
};

/// A line whose time is told in seconds since it began.
struct Rig {
    line: Line,
    began: Instant,
}

impl Rig {
    fn new() -> Rig {
        let began = Instant::now();
        Rig { line: Line::new(RULES, began), began }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + Duration::from_secs(seconds)
    }

    fn step(&mut self, seconds: u64, input: Input) -> Option<u16> {
        self.line.step(self.at(seconds), input).map(|ending| ending.code)
    }

    /// Takes what is queued, as bytes.
    fn flush(&mut self, seconds: u64) -> Vec<u8> {
        let mut sent = Vec::new();
        loop {
            let mut pieces = [&[][..]; 4];
            let count = self.line.unsent(&mut pieces);
            let piece = pieces[..count].concat();
            if piece.is_empty() {
                return sent;
            }
            sent.extend_from_slice(&piece);
            self.step(seconds, Input::Wrote(piece.len()));
        }
    }

    /// Seconds until the next tick.
    fn due(&self) -> Option<u64> {
        self.line.due().map(|due| due.saturating_duration_since(self.began).as_secs())
    }
}

fn text(len: usize) -> Input {
    Input::Send(Frame::text(vec![b'x'; len].into()))
}

fn close(code: u16) -> Input {
    Input::Close { code, reason: String::new() }
}

fn closed(code: u16) -> Input {
    Input::Closed(Some((code, "why".into())))
}

fn breach(code: u16) -> Input {
    Input::Breach(Breach { code, reason: "bad" })
}

#[test]
fn frames_leave_in_order_behind_the_answer_to_the_upgrade() {
    let mut rig = Rig::new();
    rig.step(0, Input::Send(Frame::text("a".into())));
    let at = rig.at(0);
    rig.line.begin(at, Frame::raw("HTTP".into()));
    rig.step(0, Input::Send(Frame::text("b".into())));
    assert_eq!(rig.flush(0), b"HTTP\x81\x01a\x81\x01b");
    assert_eq!((rig.line.queued, rig.line.queue.capacity()), (0, 0));
}

#[test]
fn a_ping_is_answered_with_its_payload() {
    // case W5
    let mut rig = Rig::new();
    assert_eq!(rig.step(0, Input::Ping("hi".into())), None);
    assert_eq!(rig.flush(0), b"\x8a\x02hi");
}

#[test]
fn a_silent_client_is_asked_once_and_then_lost_once() {
    // case W1
    let mut rig = Rig::new();
    assert_eq!(rig.due(), Some(30));
    assert_eq!(rig.step(29, Input::Tick), None);
    assert_eq!(rig.flush(29), b"");
    assert_eq!(rig.step(30, Input::Tick), None);
    assert_eq!((rig.flush(30), rig.due()), (b"\x89\x00".to_vec(), Some(60)));
    assert_eq!(rig.step(59, Input::Tick), None);
    assert_eq!(rig.step(60, Input::Tick), Some(close::LOST));
    assert!(rig.line.is_over() && rig.line.is_cut());
    assert_eq!(rig.step(61, Input::Lost), None);
}

#[test]
fn any_byte_is_a_sign_of_life() {
    // case W5
    let mut rig = Rig::new();
    rig.step(30, Input::Tick);
    rig.step(59, Input::Heard);
    assert_eq!(rig.due(), Some(89));
    assert_eq!(rig.step(60, Input::Tick), None);
}

#[test]
fn silence_while_nothing_is_read_says_nothing() {
    // case W5
    let mut rig = Rig::new();
    rig.step(10, Input::Paused);
    assert_eq!(rig.due(), None);
    assert_eq!(rig.step(1000, Input::Tick), None);
    rig.step(1000, Input::Resumed);
    assert_eq!(rig.due(), Some(1030));
}

#[test]
fn a_client_that_talks_and_never_reads_is_lost() {
    // case W4
    let mut rig = Rig::new();
    rig.step(10, text(100));
    for second in [20, 40, 60] {
        rig.step(second, Input::Heard);
        assert_eq!(rig.step(second, Input::Tick), None);
    }
    assert_eq!(rig.due(), Some(70));
    assert_eq!(rig.step(70, Input::Tick), Some(close::LOST));
    let mut rig = Rig::new();
    rig.step(10, text(100));
    rig.step(60, Input::Heard);
    rig.step(65, Input::Wrote(5));
    assert_eq!(rig.due(), Some(90));
    rig.flush(89);
    rig.step(89, Input::Heard);
    assert_eq!(rig.due(), Some(119));
}

#[test]
fn a_clients_close_is_told_and_answered_with_its_code_in_place_of_what_waits() {
    // case W2
    let mut rig = Rig::new();
    rig.step(0, text(10));
    rig.step(0, Input::Wrote(5));
    rig.step(0, text(10));
    assert_eq!(rig.step(0, closed(3001)), Some(3001));
    assert!(!rig.line.is_open() && !rig.line.reads() && !rig.line.is_over());
    assert_eq!(rig.flush(0), [&[b'x'; 7][..], b"\x88\x02\x0b\xb9"].concat());
    assert!(rig.line.is_over() && !rig.line.is_cut());
}

#[test]
fn a_close_without_a_code_is_1005_for_the_actor_and_answered_without_one() {
    // case W2
    let mut rig = Rig::new();
    assert_eq!(rig.step(0, Input::Closed(None)), Some(close::NO_CODE));
    assert_eq!(rig.flush(0), b"\x88\x00");
    assert!(rig.line.is_over());
}

#[test]
fn an_actors_close_goes_behind_what_waits_and_ends_with_the_clients() {
    // case W2
    let mut rig = Rig::new();
    rig.step(0, text(1));
    assert_eq!(rig.step(0, close(3000)), None);
    rig.step(0, text(1));
    assert_eq!(rig.flush(1), b"\x81\x01x\x88\x02\x0b\xb8");
    assert!(rig.line.reads() && !rig.line.is_open());
    assert_eq!(rig.step(2, closed(3000)), None);
    assert!(rig.line.is_over() && !rig.line.is_cut());
}

#[test]
fn a_client_that_does_not_answer_a_close_is_dropped_after_five_seconds() {
    // R-WS-3, case W2
    let mut rig = Rig::new();
    rig.step(10, close(1000));
    rig.flush(12);
    assert_eq!(rig.due(), Some(17));
    assert_eq!(rig.step(16, Input::Tick), None);
    assert!(!rig.line.is_over());
    assert_eq!(rig.step(17, Input::Tick), None);
    assert!(rig.line.is_over() && rig.line.is_cut());
}

#[test]
fn closes_that_cross_end_once() {
    // case W2
    let mut rig = Rig::new();
    rig.step(0, close(1000));
    assert_eq!(rig.step(0, closed(1001)), None);
    assert_eq!(rig.flush(0), b"\x88\x02\x03\xe8");
    assert!(rig.line.is_over());
    let mut rig = Rig::new();
    assert_eq!(rig.step(0, closed(1001)), Some(1001));
    rig.step(0, close(1000));
    assert_eq!(rig.flush(0), b"\x88\x02\x03\xe9");
    assert!(rig.line.is_over());
}

#[test]
fn a_breach_is_told_with_its_code_and_nothing_is_read_after_it() {
    // case W3
    for code in [1002, 1007, 1009] {
        let mut rig = Rig::new();
        rig.step(0, text(10));
        assert_eq!(rig.step(0, breach(code)), Some(code));
        assert!(!rig.line.reads());
        let sent = rig.flush(0);
        assert_eq!(sent, [&[0x88, 5][..], &code.to_be_bytes(), b"bad"].concat());
        assert!(rig.line.is_over());
    }
}

#[test]
fn a_client_that_does_not_read_is_closed_when_its_queue_is_full() {
    // case W4
    let mut rig = Rig::new();
    assert_eq!(rig.step(0, text(400)), None);
    assert_eq!(rig.step(0, text(400)), None);
    assert_eq!(rig.step(0, text(400)), Some(close::LOST));
    assert!(rig.line.was_slow() && !rig.line.is_open());
    assert!(rig.line.queued < 200, "{}", rig.line.queued);
    rig.step(5, Input::Tick);
    assert!(rig.line.is_over() && rig.line.is_cut());
}

#[test]
fn pings_that_are_not_read_fill_the_queue_too() {
    // case W4
    let mut rig = Rig::new();
    let lost = (0..1000).find_map(|_| rig.step(0, Input::Ping("".into())));
    assert_eq!(lost, Some(close::LOST));
}

#[test]
fn a_slow_client_that_reads_gets_its_close() {
    // case W4
    let mut rig = Rig::new();
    rig.step(0, text(400));
    rig.step(0, close(1000));
    for second in [4, 8, 12] {
        rig.step(second, Input::Tick);
        assert!(!rig.line.is_over());
        rig.step(second, Input::Wrote(100));
    }
    assert_eq!(rig.due(), Some(17));
}

#[test]
fn a_lost_connection_is_told_once_and_holds_nothing() {
    // case W1
    let mut rig = Rig::new();
    rig.step(0, text(400));
    assert_eq!(rig.step(1, Input::Lost), Some(close::LOST));
    assert_eq!((rig.line.queued, rig.line.queue.len(), rig.due()), (0, 0, None));
    for input in [Input::Lost, closed(1000), breach(1002), text(1), close(1000), Input::Tick] {
        assert_eq!(rig.step(100, input), None);
    }
    let mut rig = Rig::new();
    rig.step(0, close(1000));
    assert_eq!(rig.step(0, Input::Lost), None, "the actor has closed it itself");
}
