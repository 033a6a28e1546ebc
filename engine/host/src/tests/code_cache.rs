use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::SystemTime};

use super::kit::{self, GuestText};
use crate::{Runtime, RuntimeConfig, RuntimeError};

fn files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    fs::read_dir(folder.path().join("code")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn modified(path: &PathBuf) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn guest() -> Vec<u8> {
    let mut guest = GuestText::new();
    let text = guest.text("cached");
    guest.handle(&format!("(call $say (i32.const 200) {text})"))
}

fn answers(runtime: &Runtime, wasm: &[u8]) -> String {
    let version = runtime.load_actor(wasm).unwrap();
    let mut instance = kit::block_on(version.instantiate(kit::setting())).unwrap();
    let (_, answer) = kit::block_on(kit::exchange(&mut instance, kit::get("/")));
    answer.unwrap().text().to_owned()
}

#[test]
fn a_second_runtime_uses_what_the_first_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = guest();
    assert_eq!(answers(&kit::runtime(folder.path()), &wasm), "cached");
    let written = files(&folder);
    assert_eq!(written.len(), 1);
    let before = modified(&written[0]);
    assert_eq!(answers(&kit::runtime(folder.path()), &wasm), "cached");
    // A compilation would have replaced the file.
    assert_eq!(files(&folder), written);
    assert_eq!(modified(&written[0]), before);
}

#[test]
fn a_damaged_file_is_compiled_again_and_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = guest();
    answers(&kit::runtime(folder.path()), &wasm);
    let path = files(&folder).remove(0);
    let whole = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let damages = [
        Vec::new(),
        whole[..30].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        flipped(0),
        flipped(20),
        flipped(whole.len() / 2),
        flipped(whole.len() - 1),
    ];
    for damaged in damages {
        fs::write(&path, &damaged).unwrap();
        assert_eq!(answers(&kit::runtime(folder.path()), &wasm), "cached");
        assert_ne!(fs::read(&path).unwrap(), damaged, "the damaged file must have been replaced");
    }
}

#[test]
fn code_of_another_engine_setting_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = guest();
    answers(&kit::runtime(folder.path()), &wasm);
    // So many slots do not fit without bounds checks: other code.
    let config = RuntimeConfig {
        cache_dir: folder.path().join("code"),
        resident_max: 20_000,
        memory_bytes_max: kit::MEMORY_BYTES_MAX,
        line_numbers: false,
    };
    let runtime = Runtime::new(&config).unwrap();
    assert_eq!(answers(&runtime, &wasm), "cached");
    assert_eq!(files(&folder).len(), 2);
}

#[test]
fn a_folder_that_anyone_may_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let code = folder.path().join("code");
    fs::create_dir(&code).unwrap();
    fs::set_permissions(&code, fs::Permissions::from_mode(0o777)).unwrap();
    let config = RuntimeConfig {
        cache_dir: code,
        resident_max: 1,
        memory_bytes_max: kit::MEMORY_BYTES_MAX,
        line_numbers: false,
    };
    let error = Runtime::new(&config).err().expect("refused");
    assert!(matches!(error, RuntimeError::Cache(_)));
    assert!(error.to_string().contains("chmod o-w"), "{error}");
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_time() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = kit::runtime(folder.path());
    fs::remove_dir_all(folder.path().join("code")).unwrap();
    assert_eq!(answers(&runtime, &guest()), "cached");
}
