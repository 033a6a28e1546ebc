use super::kit::{self, GuestText, RUNTIME};
use crate::{Hooks, LoadError};

fn refused(wasm: &[u8]) -> LoadError {
    RUNTIME.load_actor(wasm).expect_err("must not load")
}

#[test]
fn what_is_not_webassembly_is_refused() {
    for bytes in [&b""[..], b"hello", b"\0as", b"(component)"] {
        assert_eq!(refused(bytes), LoadError::NotWasm, "{bytes:?}");
    }
}

#[test]
fn a_core_module_is_refused_with_the_way_to_make_a_component() {
    let error = refused(&wat::parse_str("(module)").unwrap());
    assert_eq!(error, LoadError::CoreModule);
    let text = error.to_string();
    assert!(text.contains("wasm32-wasip2") && text.contains("wasm-tools component new"), "{text}");
}

#[test]
fn a_damaged_component_is_refused() {
    let mut wasm = GuestText::new().handle("");
    wasm.truncate(wasm.len() / 2);
    assert!(matches!(refused(&wasm), LoadError::Invalid(_)));
    assert!(matches!(refused(b"\0asm\x0d\0\x01\0\xff\xff"), LoadError::Invalid(_)));
    assert!(matches!(refused(b"\0asm"), LoadError::Invalid(_)));
}

#[test]
fn a_component_without_the_handler_is_refused() {
    assert_eq!(refused(&wat::parse_str("(component)").unwrap()), LoadError::NoHandler);
}

#[test]
fn an_unknown_import_is_named_together_with_what_is_offered() {
    let wasm = wat::parse_str(r#"(component (import "acme:queue/jobs@1.0.0" (instance)))"#).unwrap();
    let error = refused(&wasm);
    assert!(matches!(&error, LoadError::UnknownImport { name, .. } if name == "acme:queue/jobs@1.0.0"));
    let text = error.to_string();
    assert!(text.contains("wasmkeep:actor/storage") && text.contains("WASI 0.2"), "{text}");
    let newer = wat::parse_str(r#"(component (import "wasi:http/types@0.3.0" (instance)))"#).unwrap();
    assert!(
        matches!(refused(&newer), LoadError::UnknownImport { name, .. } if name == "wasi:http/types@0.3.0")
    );
    let own = wat::parse_str(r#"(component (import "wasmkeep:actor/queues@0.2.0" (instance)))"#).unwrap();
    assert!(matches!(refused(&own), LoadError::UnknownImport { .. }));
}

#[test]
fn another_version_of_the_contract_is_refused() {
    let wasm = wat::parse_str(r#"(component (import "wasmkeep:actor/storage@0.3.0" (instance)))"#).unwrap();
    let error = refused(&wasm);
    assert_eq!(error, LoadError::ContractVersion { name: "wasmkeep:actor/storage@0.3.0".into() });
    assert!(error.to_string().contains("0.2"), "{error}");
}

#[test]
fn a_known_import_with_a_function_it_does_not_have_is_refused() {
    let wasm = wat::parse_str(
        r#"(component (import "wasmkeep:actor/storage@0.2.0" (instance (export "vacuum" (func)))))"#,
    )
    .unwrap();
    let error = refused(&wasm);
    assert!(
        matches!(&error, LoadError::WrongType { name, .. } if name == "import wasmkeep:actor/storage@0.2.0"),
        "{error}"
    );
}

#[test]
fn a_hook_with_other_types_is_refused() {
    let wasm = GuestText::new()
        .world("export on-init: func(again: bool) -> result<_, string>;")
        .code(r#"(func (export "on-init") (param i32) (result i32) unreachable)"#)
        .handle("");
    let error = refused(&wasm);
    assert!(matches!(&error, LoadError::WrongType { name, .. } if name == "export on-init"), "{error}");
    let instance = wat::parse_str(r#"(component (instance $i) (export "on-alarm" (instance $i)))"#).unwrap();
    assert_eq!(refused(&instance), LoadError::NoHandler);
}

#[test]
fn more_memory_than_an_actor_may_have_is_refused() {
    let wasm =
        wat::parse_str(r#"(component (core module $m (memory 4000)) (core instance (instantiate $m)))"#)
            .unwrap();
    assert!(matches!(refused(&wasm), LoadError::OverLimit(_)));
}

#[test]
fn a_version_knows_which_hooks_its_component_has() {
    let plain = kit::version(&GuestText::new().handle(""));
    assert_eq!(plain.hooks(), Hooks::default());
    let hooked = GuestText::new()
        .in_world("include wasmkeep:actor/actor@0.2.0;")
        .code(
            r#"(func (export "on-init") (result i32) unreachable)
               (func (export "on-alarm") (param i64 i32) (result i32) unreachable)
               (func (export "on-websocket-open") (param i64 i32 i32 i32 i32) (result i32) unreachable)
               (func (export "on-websocket-message") (param i64 i32 i32 i32) unreachable)
               (func (export "on-websocket-close") (param i64 i32 i32 i32) unreachable)"#,
        )
        .handle("");
    let all = Hooks {
        init: true,
        alarm: true,
        websocket_open: true,
        websocket_message: true,
        websocket_close: true,
    };
    assert_eq!(kit::version(&hooked).hooks(), all);
}

#[test]
fn the_id_is_the_content() {
    let (one, other) = (GuestText::new().handle(""), GuestText::new().handle("(drop (i32.const 1))"));
    assert_eq!(kit::version(&one).id(), kit::version(&one).id());
    assert_ne!(kit::version(&one).id(), kit::version(&other).id());
    assert_eq!(kit::version(&one).id().len(), 16);
}

#[test]
fn the_stateless_component_has_only_wasi() {
    let with_storage =
        wat::parse_str(r#"(component (import "wasmkeep:actor/storage@0.2.0" (instance)))"#).unwrap();
    let error = RUNTIME.load_stateless(&with_storage).expect_err("no storage there");
    assert!(matches!(&error, LoadError::UnknownImport { .. }), "{error}");
    assert!(!error.to_string().contains("alarms"), "{error}");
    let mut guest = GuestText::new();
    let text = guest.text("site");
    let version =
        RUNTIME.load_stateless(&guest.handle(&format!("(call $say (i32.const 200) {text})"))).unwrap();
    let mut instance = kit::block_on(version.instantiate(kit::setting())).unwrap();
    let (_, answer) = kit::block_on(kit::exchange(&mut instance, kit::get("/")));
    assert_eq!(answer.unwrap().text(), "site");
}
