use wasmkeep_actor::{Failure, Guest as _, InitError, TurnEnd};

use super::kit::{self, GuestText, block_on, exchange, get};

/// `on-init` runs `init`; what it gives is where its result lies.
fn with_init(mut guest: GuestText, init: &str) -> Vec<u8> {
    let text = guest.text("up");
    guest
        .world("include wasmkeep:actor/hook-init@0.2.0;")
        .code(&format!(r#"(func (export "on-init") (result i32) {init})"#))
        .handle(&format!("(call $say (i32.const 200) {text})"))
}

#[test]
fn a_component_without_the_hook_has_none() {
    let mut instance = kit::instance(&GuestText::new().handle(""));
    assert!(!instance.has_init());
    assert_eq!(block_on(instance.init()), Ok(()));
}

#[test]
fn on_init_runs_and_the_instance_goes_on() {
    let mut instance = kit::instance(&with_init(GuestText::new(), "(i32.const 64)"));
    assert!(instance.has_init());
    assert_eq!(block_on(instance.init()), Ok(()));
    let (end, answer) = block_on(exchange(&mut instance, get("/")));
    assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "up"));
}

#[test]
fn an_error_of_on_init_is_told_and_the_instance_may_be_used_again() {
    let mut guest = GuestText::new();
    let text = guest.text("no schema");
    let mut operands = text.split(") (");
    let at = operands.next().unwrap().trim_start_matches('(');
    let len = operands.next().unwrap().trim_end_matches(')');
    let init = format!(
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store (i32.const 68) ({at}))
         (i32.store (i32.const 72) ({len})) (i32.const 64)"
    );
    let mut instance = kit::instance(&with_init(guest, &init));
    for _ in 0..2 {
        assert_eq!(block_on(instance.init()), Err(InitError::Refused("no schema".into())));
    }
}

#[test]
fn a_trap_in_on_init_poisons() {
    let mut instance = kit::instance(&with_init(GuestText::new(), "unreachable"));
    assert!(matches!(block_on(instance.init()), Err(InitError::Poisoned(Failure::Trap(_)))));
    assert!(matches!(block_on(instance.init()), Err(InitError::Poisoned(Failure::Bug(_)))));
}
