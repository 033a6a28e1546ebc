use expect_test::{Expect, expect};

use super::*;
use crate::Failure;

mod dozing;

/// An event named by a number; from 100 on it has been abandoned by its sender, in the fifties it is an alarm.
#[derive(Debug, PartialEq, Eq)]
struct Numbered(u32);

impl Event for Numbered {
    type Ticket = ();

    fn ticket(&self) {}

    fn fail((): (), _: &Failure) {}

    fn refuse(self, _: &Refusal) {}

    fn is_abandoned(&self) -> bool {
        self.0 >= 100
    }

    fn is_alarm(&self) -> bool {
        (50..60).contains(&self.0)
    }
}

fn arrive(number: u32) -> Input<Numbered> {
    Input::Arrive(Numbered(number))
}

fn ended() -> Input<Numbered> {
    Input::Ended(TurnEnd::Ready, StorageFate::Keep)
}

/// Feeds `inputs` to a new actor with room for two waiting events and compares what it did, a line a step.
#[track_caller]
fn check(inputs: impl IntoIterator<Item = Input<Numbered>>, expected: &Expect) {
    let mut actor = Lifecycle::new(2);
    let mut lines = String::new();
    for input in inputs {
        let effects = actor.step(input);
        let mut words: Vec<String> =
            effects.refused.iter().map(|(event, why)| format!("refuse {} ({why})", event.0)).collect();
        words.push(match effects.next {
            None => "wait".into(),
            Some(Action::Run(event)) => format!("run {}", event.0),
            Some(other) => format!("{other:?}").to_lowercase(),
        });
        lines.push_str(&words.join(", "));
        lines.push('\n');
    }
    expected.assert_eq(&lines);
}

fn woken() -> [Input<Numbered>; 3] {
    [arrive(1), Input::Opened(Ok(())), Input::Started(Ok(NeedsInit::No))]
}

#[test]
fn the_first_event_opens_starts_and_initialises_before_it_runs() {
    check(
        [
            arrive(1),
            Input::Opened(Ok(())),
            Input::Started(Ok(NeedsInit::Yes)),
            Input::Initialised(Ok(())),
            ended(),
            arrive(2),
        ],
        &expect![[r"
            open
            start
            init
            run 1
            wait
            run 2
        "]],
    );
}

#[test]
fn events_run_one_at_a_time_in_arrival_order_and_the_mailbox_is_bounded() {
    check(
        woken().into_iter().chain([arrive(2), arrive(3), arrive(4), ended(), ended(), ended()]),
        &expect![[r"
            open
            start
            run 1
            wait
            wait
            refuse 4 (the actor has 2 events waiting; retry), wait
            run 2
            run 3
            wait
        "]],
    );
}

#[test]
fn an_alarm_finds_a_place_in_a_full_mailbox_and_waits_for_its_turn() {
    check(
        woken().into_iter().chain([arrive(2), arrive(3), arrive(50), arrive(4), ended(), ended(), ended()]),
        &expect![[r"
            open
            start
            run 1
            wait
            wait
            wait
            refuse 4 (the actor has 2 events waiting; retry), wait
            run 2
            run 3
            run 50
        "]],
    );
}

#[test]
fn a_trap_or_no_answer_drops_the_instance_and_keeps_the_database() {
    for end in [TurnEnd::Poisoned(Failure::Trap("unreachable".into())), TurnEnd::Retired] {
        check(
            woken().into_iter().chain([
                arrive(2),
                Input::Ended(end, StorageFate::Keep),
                Input::Started(Ok(NeedsInit::No)),
                ended(),
            ]),
            &expect![[r"
                open
                start
                run 1
                wait
                start
                run 2
                wait
            "]],
        );
    }
}

#[test]
fn a_failed_on_init_refuses_its_event_and_is_tried_again_at_the_next() {
    let error = || Input::Initialised(Err(InitError::Refused("no table".into())));
    let trap = Input::Initialised(Err(InitError::Poisoned(Failure::Trap("oops".into()))));
    check(
        [
            arrive(1),
            Input::Opened(Ok(())),
            Input::Started(Ok(NeedsInit::Yes)),
            error(),
            arrive(2),
            trap,
            arrive(3),
            Input::Started(Ok(NeedsInit::Yes)),
            Input::Initialised(Ok(())),
        ],
        &expect![[r"
            open
            start
            init
            refuse 1 (the actor's on-init failed: no table), wait
            init
            refuse 2 (the actor's on-init failed: the actor trapped: oops), wait
            start
            init
            run 3
        "]],
    );
}

#[test]
fn storage_that_cannot_be_opened_refuses_everyone_waiting_and_is_tried_again() {
    check(
        [arrive(1), arrive(2), Input::Opened(Err(Refusal::Storage("damaged".into()))), arrive(3)],
        &expect![[r"
            open
            wait
            refuse 1 (the actor's storage cannot be opened: damaged), refuse 2 (the actor's storage cannot be opened: damaged), wait
            open
        "]],
    );
}

#[test]
fn an_instance_that_cannot_be_made_closes_the_database_again() {
    check(
        [arrive(1), Input::Opened(Ok(())), Input::Started(Err(Refusal::NoRoom)), Input::Closed, arrive(2)],
        &expect![[r"
            open
            start
            refuse 1 (the node has no room for another actor; retry), close
            wait
            open
        "]],
    );
}

#[test]
fn an_idle_actor_rests_and_wakes_at_the_next_event() {
    check(
        woken().into_iter().chain([Input::Rest, ended(), Input::Closed, arrive(2)]),
        &expect![[r"
            open
            start
            run 1
            wait
            close
            wait
            open
        "]],
    );
}

#[test]
fn an_event_that_arrives_while_the_actor_closes_wakes_it_again() {
    check(
        woken().into_iter().chain([ended(), Input::Rest, arrive(2), Input::Closed, Input::Opened(Ok(()))]),
        &expect![[r"
            open
            start
            run 1
            wait
            close
            wait
            open
            start
        "]],
    );
}

#[test]
fn an_actor_that_closes_gives_its_place_unless_an_event_calls_it_back() {
    let mut actor = Lifecycle::new(2);
    for input in woken().into_iter().chain([ended()]) {
        actor.step(input);
    }
    assert!(!actor.is_leaving());
    actor.step(Input::Rest);
    assert!(actor.is_leaving());
    actor.step(arrive(2));
    assert!(!actor.is_leaving());
    actor.step(Input::Closed);
    assert!(!actor.is_leaving() && !actor.is_asleep());
}

#[test]
fn an_event_that_arrives_before_the_rest_begins_calls_it_off() {
    check(
        woken().into_iter().chain([Input::Rest, arrive(2), ended(), ended()]),
        &expect![[r"
            open
            start
            run 1
            wait
            wait
            run 2
            wait
        "]],
    );
}

#[test]
fn a_stopping_actor_finishes_what_waits_and_takes_nothing_new() {
    check(
        woken().into_iter().chain([arrive(2), Input::Stop, arrive(3), ended(), ended(), Input::Closed]),
        &expect![[r"
            open
            start
            run 1
            wait
            wait
            refuse 3 (the node is stopping; retry), wait
            run 2
            close
            wait
        "]],
    );
}

#[test]
fn giving_up_refuses_what_waits() {
    check(
        woken().into_iter().chain([arrive(2), Input::GiveUp, ended(), Input::Closed]),
        &expect![[r"
            open
            start
            run 1
            wait
            refuse 2 (the node is stopping; retry), wait
            close
            wait
        "]],
    );
}

#[test]
fn delete_self_erases_before_the_next_event_which_starts_afresh() {
    check(
        woken().into_iter().chain([
            arrive(2),
            Input::Ended(TurnEnd::Ready, StorageFate::Erase),
            Input::Closed,
            Input::Opened(Ok(())),
            Input::Started(Ok(NeedsInit::Yes)),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            erase
            open
            start
            init
        "]],
    );
}

#[test]
fn a_connection_that_cannot_be_trusted_is_opened_again() {
    check(
        woken().into_iter().chain([
            Input::Ended(TurnEnd::Ready, StorageFate::Reopen),
            arrive(2),
            Input::Closed,
            Input::Opened(Ok(())),
        ]),
        &expect![[r"
            open
            start
            run 1
            close
            wait
            open
            start
        "]],
    );
}

#[test]
fn an_event_whose_sender_left_never_runs_and_wakes_nobody() {
    check(
        [
            arrive(100),
            arrive(1),
            arrive(101),
            Input::Opened(Ok(())),
            Input::Started(Ok(NeedsInit::No)),
            ended(),
        ],
        &expect![[r"
            wait
            open
            wait
            start
            run 1
            wait
        "]],
    );
}

fn lost() -> Input<Numbered> {
    Input::Lost(Refusal::NotHeld("lost".into()))
}

// R-LEASE-3, R-REPL-4
#[test]
fn a_lost_actor_refuses_what_waits_and_opens_anew_for_the_next_event() {
    check(
        woken().into_iter().chain([
            arrive(2),
            lost(),
            ended(),
            arrive(3),
            Input::Closed,
            Input::Opened(Ok(())),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            refuse 2 (lost; retry), wait
            close
            wait
            open
            start
        "]],
    );
}

// R-LEASE-3
#[test]
fn an_idle_actor_that_is_lost_closes_and_one_that_closes_already_does_so_once() {
    check(
        woken().into_iter().chain([ended(), lost(), lost(), Input::Closed]),
        &expect![[r"
            open
            start
            run 1
            wait
            close
            wait
            wait
        "]],
    );
}

// R-REPL-4
#[test]
fn an_actor_lost_while_it_asked_to_be_deleted_is_not() {
    let erase = Input::Ended(TurnEnd::Ready, StorageFate::Erase);
    check(
        woken().into_iter().chain([lost(), erase, Input::Closed]),
        &expect![[r"
            open
            start
            run 1
            wait
            close
            wait
        "]],
    );
}

#[test]
fn after_a_new_version_the_next_event_runs_on_a_new_instance_of_the_same_open_database() {
    check(
        woken().into_iter().chain([
            // The event under way ends where it began.
            Input::Renew,
            arrive(2),
            ended(),
            Input::Started(Ok(NeedsInit::Yes)),
            Input::Initialised(Ok(())),
            ended(),
            // Idle: nothing happens until an event comes.
            Input::Renew,
            Input::Renew,
            arrive(3),
            Input::Started(Ok(NeedsInit::No)),
            ended(),
            arrive(4),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            wait
            start
            init
            run 2
            wait
            wait
            wait
            start
            run 3
            wait
            run 4
        "]],
    );
}

#[test]
fn a_version_that_comes_while_an_instance_is_made_or_initialised_is_not_missed() {
    check(
        [
            arrive(1),
            Input::Opened(Ok(())),
            Input::Renew,
            Input::Started(Ok(NeedsInit::Yes)),
            Input::Started(Ok(NeedsInit::Yes)),
            Input::Renew,
            Input::Initialised(Ok(())),
            Input::Started(Ok(NeedsInit::No)),
        ],
        &expect![[r"
            open
            start
            wait
            start
            init
            wait
            start
            run 1
        "]],
    );
}
