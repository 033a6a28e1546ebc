//! Actors that are idle for a moment.

use expect_test::expect;

use super::*;

#[test]
fn an_actor_idle_for_a_moment_dozes_and_keeps_its_instance() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            Input::Dozed(true, StorageFate::Keep),
            Input::Doze,
            arrive(2),
            Input::Woken(Ok(())),
            ended(),
            Input::Rest,
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            wait
            wait
            wake
            run 2
            wait
            close
        "]],
    );
}

#[test]
fn a_database_that_has_to_stay_open_is_not_woken() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            Input::Dozed(false, StorageFate::Keep),
            arrive(2),
            ended(),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            wait
            run 2
            wait
        "]],
    );
}

#[test]
fn an_event_that_arrives_while_the_actor_begins_to_doze_waits_and_wakes_it() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            arrive(2),
            Input::Dozed(true, StorageFate::Keep),
            Input::Woken(Ok(())),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            wait
            wake
            run 2
        "]],
    );
}

#[test]
fn an_event_calls_off_a_doze_that_has_not_begun() {
    check(
        woken().into_iter().chain([Input::Doze, arrive(2), ended(), ended()]),
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
fn a_dozing_actor_rests_and_stops_without_being_woken() {
    for end in [Input::Rest, Input::Stop, Input::GiveUp] {
        check(
            woken().into_iter().chain([
                ended(),
                Input::Doze,
                Input::Dozed(true, StorageFate::Keep),
                end,
                Input::Closed,
            ]),
            &expect![[r"
                open
                start
                run 1
                wait
                doze
                wait
                close
                wait
            "]],
        );
    }
}

#[test]
fn an_actor_that_is_about_to_doze_gives_its_place_once() {
    let mut actor = Lifecycle::new(2);
    for input in woken().into_iter().chain([ended(), Input::Doze]) {
        actor.step(input);
    }
    assert!(actor.is_idle() && !actor.is_leaving());
    assert_eq!(actor.step(Input::Rest).next, None);
    assert!(!actor.is_idle() && actor.is_leaving(), "its place is given once");
    assert_eq!(actor.step(Input::Dozed(true, StorageFate::Keep)).next, Some(Action::Close));
}

#[test]
fn an_event_for_an_actor_that_gave_its_place_while_it_began_to_doze_finds_it_closing() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            Input::Rest,
            arrive(2),
            Input::Dozed(true, StorageFate::Keep),
            Input::Closed,
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            wait
            wait
            close
            open
        "]],
    );
}

#[test]
fn a_database_that_cannot_be_opened_again_refuses_who_waits_and_is_opened_anew_at_the_next_event() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            Input::Dozed(true, StorageFate::Keep),
            arrive(2),
            Input::Woken(Err(Refusal::Storage("gone".into()))),
            Input::Closed,
            arrive(3),
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            wait
            wake
            refuse 2 (the actor's storage cannot be opened: gone), close
            wait
            open
        "]],
    );
}

#[test]
fn a_database_found_bad_while_it_was_put_away_is_closed() {
    check(
        woken().into_iter().chain([
            ended(),
            Input::Doze,
            Input::Dozed(true, StorageFate::Reopen),
            Input::Closed,
        ]),
        &expect![[r"
            open
            start
            run 1
            wait
            doze
            close
            wait
        "]],
    );
}
