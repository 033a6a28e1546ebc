use clap::CommandFactory;
use expect_test::expect_file;

use super::*;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_help_says_what_it_said() {
    let mut command = Cli::command();
    for (name, file) in [
        ("serve", expect_file!["serve-help.txt"]),
        ("demo", expect_file!["demo-help.txt"]),
        ("new", expect_file!["new-help.txt"]),
        ("dev", expect_file!["dev-help.txt"]),
    ] {
        let sub = command.find_subcommand_mut(name).unwrap().clone().term_width(100);
        file.assert_eq(&sub.bin_name(format!("wasmkeep {name}")).render_long_help().to_string());
    }
    for (group, name, file) in [
        ("actor", "inspect", expect_file!["actor-inspect-help.txt"]),
        ("actor", "export", expect_file!["actor-export-help.txt"]),
        ("actor", "verify", expect_file!["actor-verify-help.txt"]),
        ("cluster", "status", expect_file!["cluster-status-help.txt"]),
        ("cluster", "fence", expect_file!["cluster-fence-help.txt"]),
        ("cluster", "forget", expect_file!["cluster-forget-help.txt"]),
    ] {
        let group_command = command.find_subcommand_mut(group).unwrap();
        let sub = group_command.find_subcommand_mut(name).unwrap().clone().term_width(100);
        file.assert_eq(&sub.bin_name(format!("wasmkeep {group} {name}")).render_long_help().to_string());
    }
}

#[test]
fn flags_that_cannot_work_are_refused_in_one_sentence() {
    // R-FLAG-5
    for (line, part) in [
        ("wasmkeep serve --actor counter", "like --actor counter=counter.wasm"),
        ("wasmkeep serve --actor dir/notes.wasm", "like --actor notes=dir/notes.wasm"),
        ("wasmkeep serve --access counter", "write it as CLASS=RULE"),
        ("wasmkeep new 1abc", "a class is a small letter, then small letters, digits and hyphens"),
        ("wasmkeep new Counter", "a class is a small letter, then small letters, digits and hyphens"),
        ("wasmkeep dev --class a_b", "a class is a small letter, then small letters, digits and hyphens"),
        ("wasmkeep serve --listen 8080", "write ADDRESS:PORT, like 127.0.0.1:8080"),
        ("wasmkeep serve --listen :8080", "write ADDRESS:PORT, like 127.0.0.1:8080"),
        ("wasmkeep serve --listen http://a:8080", "write ADDRESS:PORT, like 127.0.0.1:8080"),
        ("wasmkeep serve --listen ::1:8080", "write ADDRESS:PORT, like 127.0.0.1:8080"),
        ("wasmkeep serve --cluster-listen 7443", "write ADDRESS:PORT, like 127.0.0.1:8080"),
        ("wasmkeep serve --actor counter=", "nothing follows"),
        ("wasmkeep serve --actor Counter=a.wasm", "the class 'Counter' cannot be used"),
        ("wasmkeep serve --access counter=closed", "use open, existing, existing:NAME or internal"),
        ("wasmkeep serve --env counter=", "no file follows"),
        ("wasmkeep serve --env Counter=values", "the class 'Counter'"),
        ("wasmkeep serve --allow-outbound 10.0.0.1/8", "write 10.0.0.0/8"),
        ("wasmkeep serve --allow-outbound localhost", "like 10.1.0.0/16"),
        ("wasmkeep serve --max-resident 0", "must be at least 1"),
        ("wasmkeep serve --event-limit-secs 0", "above 0"),
        ("wasmkeep serve --event-limit-secs inf", "above 0"),
        ("wasmkeep serve --actor-memory-mib 5000", "4096"),
        ("wasmkeep serve --listen localhost", "write ADDRESS:PORT"),
        ("wasmkeep serve --node-id A", "not allowed"),
        ("wasmkeep actor inspect acme/room --bucket s3://acme", "write it as TENANT/CLASS/NAME"),
        ("wasmkeep actor inspect acme/room/a --bucket acme", "write s3://BUCKET[/PREFIX]"),
        ("wasmkeep actor inspect acme/room/a", "--bucket"),
        ("wasmkeep actor export acme/room/a --bucket s3://acme -o a --litestream b", "cannot be used with"),
        ("wasmkeep actor export acme/room/a --bucket s3://acme -o a --at noon", "a time with its zone"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn a_node_needs_no_flag_but_what_it_serves() {
    // R-FLAG-1, R-FLAG-2
    let Command::Serve(serve) = parse("wasmkeep serve --actor counter=c.wasm").unwrap().command else {
        panic!()
    };
    assert_eq!(serve.node.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(serve.node.max_connections, 10_000);
    assert_eq!(serve.actors.len(), 1);
    assert!(serve.node.allow_outbound.is_empty());
}

#[test]
fn an_actor_is_named_by_its_path_and_the_rest_of_the_path_is_its_name() {
    for (path, tenant, class, name) in
        [("acme/room/lobby", "acme", "room", "lobby"), ("acme/room/a/b c/%2F", "acme", "room", "a/b c/%2F")]
    {
        let parsed: ActorPath = path.parse().unwrap();
        let parts = (parsed.tenant.as_str(), parsed.actor.class.as_str(), parsed.actor.name.as_str());
        assert_eq!(parts, (tenant, class, name));
        assert_eq!(parsed.to_string(), path);
    }
    for bad in ["", "acme", "acme/room", "acme/room/", "Acme/room/a", "acme/room/.."] {
        assert!(bad.parse::<ActorPath>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_listening_address_may_be_a_name() {
    // R-FLAG-2
    let Command::Serve(serve) = parse("wasmkeep serve --listen localhost:8081").unwrap().command else {
        panic!()
    };
    assert!(serve.node.listen.ip().is_loopback() && serve.node.listen.port() == 8081);
}

#[test]
fn what_the_help_says_to_begin_with_can_be_typed() {
    let help = Cli::command().get_after_help().unwrap().to_string();
    let commands = help.lines().map(|line| line.split_once(':').unwrap().1.trim());
    let ours: Vec<_> = commands.filter(|command| command.starts_with("wasmkeep ")).collect();
    assert_eq!(ours.len(), 2, "{help}");
    let Command::New(new) = parse(ours[0].split(" && ").next().unwrap()).unwrap().command else { panic!() };
    assert!(ours[0].ends_with(&format!(" && cd {}", new.name)));
    let Command::Dev(dev) = parse(ours[1]).unwrap().command else { panic!() };
    assert!(help.contains(&format!("curl -X POST http://{}/actor/{}/", dev.node.listen, new.name)));
    // What the project's own file says to try.
    let readme = include_str!("../../templates/rust/README.md.in").replace("{{name}}", new.name.as_str());
    assert!(readme.contains(help.lines().last().unwrap().split_once(':').unwrap().1.trim()));
}
