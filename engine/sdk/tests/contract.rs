//! The guest contract in `engine/wit`: it parses, each world resolves, and what it promises is there.

use std::path::Path;

use wit_parser::{PackageId, Resolve, WorldId, WorldItem};

fn contract() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let (package, _) = resolve.push_dir(&folder).expect("engine/wit parses");
    (resolve, package)
}

fn world(resolve: &Resolve, package: PackageId, name: &str) -> WorldId {
    resolve.select_world(&[package], Some(name)).unwrap_or_else(|error| panic!("world {name}: {error}"))
}

fn exports(resolve: &Resolve, world: WorldId) -> Vec<String> {
    let mut names: Vec<_> =
        resolve.worlds[world].exports.keys().map(|key| resolve.name_world_key(key)).collect();
    names.sort();
    names
}

const HANDLER: &str = "wasi:http/incoming-handler@0.2.12";

#[test]
fn the_package_is_the_one_components_name() {
    let (resolve, package) = contract();
    assert_eq!(resolve.packages[package].name.to_string(), "wasmkeep:actor@0.2.0");
}

#[test]
fn each_world_exports_what_its_name_says() {
    let (resolve, package) = contract();
    let every_hook =
        ["on-alarm", "on-init", "on-websocket-close", "on-websocket-message", "on-websocket-open", HANDLER];
    let worlds: [(&str, &[&str]); 10] = [
        ("imports", &[]),
        ("actor", &every_hook),
        ("basic-actor", &[HANDLER]),
        ("stateless", &[HANDLER]),
        ("request-handler", &[HANDLER]),
        ("hook-init", &["on-init"]),
        ("hook-alarm", &["on-alarm"]),
        ("hook-websocket-open", &["on-websocket-open"]),
        ("hook-websocket-message", &["on-websocket-message"]),
        ("hook-websocket-close", &["on-websocket-close"]),
    ];
    for (name, expected) in worlds {
        assert_eq!(exports(&resolve, world(&resolve, package, name)), expected, "world {name}");
    }
    assert_eq!(resolve.packages[package].worlds.len(), worlds.len());
}

#[test]
fn the_stateless_component_has_only_wasi_and_whole_answers_to_import() {
    let (resolve, package) = contract();
    let world = &resolve.worlds[world(&resolve, package, "stateless")];
    let names: Vec<String> = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
    let own: Vec<_> = names.iter().filter(|name| !name.starts_with("wasi:")).collect();
    assert_eq!(own, ["wasmkeep:actor/replies@0.2.0"]);
    assert!(names.len() > own.len());
}

#[test]
fn the_hooks_of_the_whole_world_have_the_types_of_their_own_worlds() {
    let (resolve, package) = contract();
    let whole = &resolve.worlds[world(&resolve, package, "actor")];
    for (name, own) in &resolve.packages[package].worlds {
        for (key, item) in resolve.worlds[*own].exports.iter().filter(|_| name.starts_with("hook-")) {
            let (WorldItem::Function(own), WorldItem::Function(same)) = (item, &whole.exports[key]) else {
                panic!("{name} exports a function");
            };
            let names = |function: &wit_parser::Function| {
                let types = function.params.iter().map(|param| type_name(&resolve, &param.ty));
                let params: Vec<_> =
                    function.params.iter().map(|param| param.name.clone()).zip(types).collect();
                (params, function.result.map(|result| type_name(&resolve, &result)))
            };
            assert_eq!(names(own), names(same), "{name}");
        }
    }
}

/// A record's or variant's name, and the structure of anything else: an alias is what it stands for.
fn type_name(resolve: &Resolve, of: &wit_parser::Type) -> String {
    use wit_parser::TypeDefKind as Kind;
    let wit_parser::Type::Id(id) = of else { return format!("{of:?}") };
    let part = |part: &Option<wit_parser::Type>| part.map(|part| type_name(resolve, &part));
    let definition = &resolve.types[*id];
    match &definition.kind {
        Kind::Type(alias) => type_name(resolve, alias),
        Kind::List(item) => format!("list<{}>", type_name(resolve, item)),
        Kind::Tuple(tuple) => {
            let parts: Vec<_> = tuple.types.iter().map(|item| type_name(resolve, item)).collect();
            format!("tuple<{}>", parts.join(", "))
        }
        Kind::Result(result) => format!("result<{:?}, {:?}>", part(&result.ok), part(&result.err)),
        kind => definition.name.clone().unwrap_or_else(|| format!("{kind:?}")),
    }
}

/// What every guest author reads is the contract itself, so nothing in it goes without a word.
#[test]
fn every_interface_function_and_world_is_documented() {
    let (resolve, package) = contract();
    let documented =
        |docs: &wit_parser::Docs| docs.contents.as_ref().is_some_and(|text| !text.trim().is_empty());
    for (name, id) in &resolve.packages[package].interfaces {
        let interface = &resolve.interfaces[*id];
        assert!(documented(&interface.docs), "interface {name}");
        for (name, function) in &interface.functions {
            assert!(documented(&function.docs), "function {name}");
        }
    }
    for (name, id) in &resolve.packages[package].worlds {
        let world = &resolve.worlds[*id];
        assert!(documented(&world.docs), "world {name}");
        for (key, item) in &world.exports {
            if let WorldItem::Function(function) = item {
                assert!(documented(&function.docs), "hook {key:?} of world {name}");
            }
        }
    }
}
