//! The chat sample and its page in a real browser: Chromium, without a screen, told what to do over WebDriver.

#[path = "../support/browser.rs"]
mod driver;
use crate::support::{Node, eventually, guest};
use driver::{Browser, Tab};

#[test]
#[ignore = "needs Chromium and its driver: run scripts/test-browser"]
fn two_tabs_talk_one_reloads_and_the_room_sleeps_in_between() {
    // R-WS-2
    let folder = tempfile::tempdir().unwrap();
    let chat = format!("--actor=chat={}", guest("chat").display());
    let site = guest("site").display().to_string();
    let node = Node::start_with(folder.path(), &["--hibernate-after-secs=0.5".into(), chat, site]);
    let page = |name: &str| format!("http://{}/chat?room=lobby&name={name}", node.address);
    let browser = Browser::start();

    let alice = browser.first_tab(&page("alice"));
    shows(&alice, "#here", "alice");
    let bob = browser.new_tab(&page("bob"));
    shows(&bob, "#here", "alice, bob");
    shows(&alice, "#here", "alice, bob");

    say(&bob, "is anyone here?");
    shows(&alice, "#said", "bob: is anyone here?");
    say(&alice, "I am");
    shows(&bob, "#said", "bob: is anyone here?|alice: I am");

    let asleep = || node.metric("wasmkeep_actors_resident", "") == 0.0;
    eventually("the room sleeps", asleep);
    assert_eq!(node.metric("wasmkeep_websockets", ""), 2.0);
    let wakes = node.metric("wasmkeep_actor_wakes_total", "class=\"chat\"");
    say(&alice, "still there?");
    shows(&bob, "#said", "bob: is anyone here?|alice: I am|alice: still there?");
    assert_eq!(node.metric("wasmkeep_actor_wakes_total", "class=\"chat\""), wakes + 1.0);

    eventually("the room sleeps again", asleep);
    bob.reload();
    shows(&bob, "#said", "bob: is anyone here?|alice: I am|alice: still there?");
    shows(&bob, "#here", "alice, bob");
    shows(&alice, "#here", "alice, bob");
    say(&bob, "back");
    shows(&alice, "#said", "bob: is anyone here?|alice: I am|alice: still there?|bob: back");

    bob.close();
    shows(&alice, "#here", "alice");
    assert_eq!(node.metric("wasmkeep_websockets", ""), 1.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
#[ignore = "needs Chromium and its driver: run scripts/test-browser"]
fn a_page_comes_back_by_itself_when_its_node_was_restarted() {
    // R-WS-1
    let folder = tempfile::tempdir().unwrap();
    let chat = format!("--actor=chat={}", guest("chat").display());
    let site = guest("site").display().to_string();
    let node = Node::start_with(folder.path(), &[chat.clone(), site.clone()]);
    let address = node.address;
    let browser = Browser::start();
    let tab = browser.first_tab(&format!("http://{address}/chat?name=alice"));
    shows(&tab, "#here", "alice");
    say(&tab, "before");
    shows(&tab, "#said", "alice: before");
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    // With 1001, until it has tried to come back.
    eventually("the page knows that it is alone", || tab.run(HERE).starts_with("not connected (10"));
    let _node = Node::start_with(folder.path(), &[chat, site, format!("--listen={address}")]);
    shows(&tab, "#here", "alice");
    shows(&tab, "#said", "alice: before");
}

const HERE: &str = "return document.querySelector('#here').textContent";

fn say(tab: &Tab<'_>, text: &str) {
    tab.type_into("#text", &format!("{text}\n"));
}

/// Waits until the page shows `text` there; the items of a list are joined with `|`.
#[track_caller]
fn shows(tab: &Tab<'_>, selector: &str, text: &str) {
    let script = format!(
        "const found = document.querySelector({selector:?});
         const items = [...found.querySelectorAll('li')].map((item) => item.textContent);
         return items.length ? items.join('|') : found.textContent;"
    );
    eventually(&format!("{selector} shows {text:?}; it shows {:?}", tab.run(&script)), || {
        tab.run(&script) == text
    });
}
