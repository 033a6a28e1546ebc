//! What a bucket costs: durable writes, the output gate, restores, against a bucket in memory whose every answer takes
//! the same time. Figures are ratios to that time, so that they mean the same on another machine.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use wasmkeep_perf::{
    bucket::{self, BucketServer, Served},
    http::Connection,
    machine, println, process,
    server::{Server, free_address},
};

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Durable writes measured one after the other. After the first, whose upload is a snapshot, one more would bring the
/// periodic snapshot, and the restore would read only that.
const DURABLE_WRITES: usize = 63;

/// Clients of the actor behind the gate, fewer than its mailbox has places.
const GATE_CLIENTS: usize = 192;

/// Reads that one restore has in flight.
const READS_AT_A_TIME: usize = 8;

/// Actors restored at once, and the bytes each holds.
const STORM_ACTORS: usize = 32;
const STORM_BYTES: usize = 8 << 20;

/// Bytes all restores of a node may have in flight, and reads.
const BUDGET_BYTES: u64 = 256 << 20;
const BUDGET_READS: u64 = 32;

/// Measures durable writes, the output gate and restores.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    guests: PathBuf,

    /// Milliseconds every answer of the bucket takes.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    delay_ms: u64,

    /// Mebibytes a second the bucket's link carries.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    link_mib: u64,

    /// Seconds the gate is measured.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u64,

    /// Times that many actors are restored at once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    storms: u16,

    /// Folder for the data directories.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

/// The bucket and how nodes are started on it.
struct Place {
    flags: Flags,
    bucket: BucketServer,
    folder: tempfile::TempDir,
    delay: Duration,
    /// The shard's, and those of everything else.
    cpus: (usize, Vec<usize>),
}

/// One line of the result.
struct Figure {
    name: &'static str,
    measured: String,
    target: &'static str,
    is_reached: bool,
}

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let delay = Duration::from_millis(flags.delay_ms);
    let cpus = match *machine::cpus()? {
        [shard, ref others @ ..] if !others.is_empty() => (shard, others.to_vec()),
        _ => bail!("the shard needs a CPU of its own, and there is one only"),
    };
    let link = Some(flags.link_mib << 20);
    let bucket = on(&cpus.1, move || BucketServer::start(delay, link)).join().expect("no panic")?;
    let folder = tempfile::Builder::new().prefix("wasmkeep-bucket-").tempdir_in(&flags.data_dir)?;
    let place = Place { flags, bucket, folder, delay, cpus };
    println!("machine: {}", machine::describe());
    println!("data: {}", machine::file_system(&place.flags.data_dir));
    println!("load average: {:.2}", process::load_average()?);
    println!("bucket: {delay:?} for every answer, {} MiB/s", place.flags.link_mib);
    println!(
        "CPUs: {} for the shard and whoever asks the bystander, {:?} for the rest",
        place.cpus.0, place.cpus.1
    );

    let writer = place.node("writer")?;
    let address = writer.address();
    let mut figures = durable(&place, address)?;
    figures.push(gate(&place, address)?);
    for storm in 0..place.flags.storms {
        for actor in 0..STORM_ACTORS {
            fill(address, &storm_actor(storm, actor))?;
        }
    }
    drop(writer);
    let reader = place.node("reader")?;
    figures.push(many_files(&place, reader.address())?);
    figures.extend(storms(&place, reader.address())?);
    ensure!(reader.stop()?.success(), "the node did not stop well");

    for Figure { name, measured, target, is_reached } in &figures {
        println!("{name}: {measured}; {target}: {}", if *is_reached { "yes" } else { "NO" });
    }
    Ok(if figures.iter().all(|figure| figure.is_reached) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Place {
    /// A node on an empty disk; it was the only one before, so it has to wait for its lease.
    fn node(&self, disk: &str) -> Result<Server> {
        let address = free_address()?;
        let guest = |class: &str, file: &str| -> Result<String> {
            let path = self.flags.guests.join(file);
            let path = fs::canonicalize(&path).with_context(|| format!("{path:?}"))?;
            Ok(format!("--actor={class}={}", path.display()))
        };
        let mut command = Command::new(&self.flags.wasmkeep);
        command.args(["serve", "--shards=1", "--node-id=a", "--cluster-plaintext=accept"]);
        command.arg(format!("--listen={address}")).arg(format!("--bucket=s3://{}", bucket::NAME));
        command.arg(guest("counter", "counter.wasm")?).arg(guest("gated", "counter.wasm")?);
        command.arg(guest("sql", "sql.wasm")?).arg("--durability=gated=gate").arg("--overprovisioned");
        command.arg(format!("--cpuset={}", self.cpus.0)).arg(format!("--bucket-cpu={}", self.cpus.1[0]));
        command.arg("--data-dir").arg(self.folder.path().join(disk)).env_remove("WASMKEEP_LOG");
        command.envs(self.bucket.environment());
        Server::start(command, address, &self.folder.path().join(format!("{disk}.log")))
    }

    fn in_delays(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.delay.as_secs_f64()
    }
}

/// Durable writes one after the other: how long, and how many objects each put.
fn durable(place: &Place, address: SocketAddr) -> Result<Vec<Figure>> {
    let mut client = Connection::open(address, PATIENCE)?;
    let mut write = || -> Result<Duration> {
        let began = Instant::now();
        let answer = client.ask("POST", "/actor/counter/files/durable", b"")?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(began.elapsed())
    };
    // It makes the database and puts it as a whole.
    write()?;
    place.bucket.take_served();
    let mut times = Histogram::<u64>::new(3)?;
    for _ in 0..DURABLE_WRITES {
        times.record(micros(write()?))?;
    }
    let served = place.bucket.take_served();
    let puts = count(&served, "PUT", "/counter/files/");
    let mut in_bucket: Vec<Duration> = served
        .iter()
        .filter(|served| served.kind == "PUT" && served.key.contains("/counter/files/"))
        .map(|served| served.ended - served.arrived)
        .collect();
    let in_bucket = place.in_delays(median(&mut in_bucket));
    let p50 = place.in_delays(Duration::from_micros(times.value_at_quantile(0.5)));
    Ok(vec![
        Figure {
            name: "a durable write, p50",
            measured: format!("{p50:.2} of the delay, of which the bucket took {in_bucket:.2}"),
            target: "under 1.15",
            is_reached: p50 < 1.15,
        },
        Figure {
            name: "objects put for each durable write",
            measured: format!("{puts} for {DURABLE_WRITES}"),
            target: "exactly one",
            is_reached: puts == DURABLE_WRITES,
        },
    ])
}

/// Plain writes of many clients to one actor behind the gate.
fn gate(place: &Place, address: SocketAddr) -> Result<Figure> {
    let ask = |client: &mut Connection| -> Result<u64> {
        let answer = client.ask("POST", "/actor/gated/hot", b"")?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(answer.text().parse()?)
    };
    ask(&mut Connection::open(address, PATIENCE)?)?;
    place.bucket.take_served();
    let seconds = Duration::from_secs(place.flags.seconds);
    let began = Instant::now();
    let clients: Vec<_> = (0..GATE_CLIENTS)
        .map(|_| {
            thread::spawn(move || -> Result<Histogram<u64>> {
                let mut client = Connection::open(address, PATIENCE)?;
                let mut times = Histogram::new(3)?;
                while began.elapsed() < seconds {
                    let asked = Instant::now();
                    ask(&mut client)?;
                    times.record(micros(asked.elapsed()))?;
                }
                Ok(times)
            })
        })
        .collect();
    let mut times = Histogram::<u64>::new(3)?;
    for client in clients {
        times.add(client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??)?;
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    let puts = count(&place.bucket.take_served(), "PUT", "/gated/hot/");
    let p50 = place.in_delays(Duration::from_micros(times.value_at_quantile(0.5)));
    Ok(Figure {
        name: "writes behind the gate, one actor",
        measured: format!("{per_second:.0} a second in {puts} objects, p50 {p50:.1} of the delay"),
        target: "at least 2000 a second",
        is_reached: per_second >= 2000.0,
    })
}

/// A thread that stays on some CPUs.
fn on<T: Send + 'static>(cpus: &[usize], work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    let cpus = cpus.to_vec();
    thread::spawn(move || {
        machine::stay_on(&cpus).expect("this process may use them");
        work()
    })
}

fn storm_actor(storm: u16, actor: usize) -> String {
    format!("storm{storm}-{actor}")
}

/// An actor of 8 MiB that cannot be made smaller.
fn fill(address: SocketAddr, actor: &str) -> Result<()> {
    let mut client = Connection::open(address, PATIENCE)?;
    let script = format!("CREATE TABLE t (x); INSERT INTO t VALUES (randomblob({STORM_BYTES}))");
    let steps = format!(
        "[{{\"as\":\"script\",\"sql\":\"{script}\"}},{{\"as\":\"durable\",\"sql\":\"INSERT INTO t VALUES (1)\"}}]"
    );
    let answer = client.ask("POST", &format!("/actor/sql/{actor}/steps"), steps.as_bytes())?;
    ensure!(answer.status == 200 && !answer.text().contains("error"), "{}", answer.text());
    Ok(())
}

/// The restore of an actor whose history is a snapshot and many small files.
fn many_files(place: &Place, address: SocketAddr) -> Result<Figure> {
    place.bucket.take_served();
    let text = get(address, "/actor/counter/files")?;
    ensure!(text == (DURABLE_WRITES + 1).to_string(), "the counter is at {text}");
    let served: Vec<Served> = of(place.bucket.take_served(), "/counter/files/wal");
    let files = served.iter().filter(|served| served.kind == "GET").count();
    let wall = place.in_delays(span(&served)?) / 2.0;
    // A listing, and one read after the other in each of its places.
    let least = (1 + files.div_ceil(READS_AT_A_TIME)) as f64 / 2.0;
    Ok(Figure {
        name: "a restore of a snapshot and many small files",
        measured: format!(
            "{files} reads in {wall:.2} of a listing and a read; with {READS_AT_A_TIME} reads at a time it takes {least:.2}"
        ),
        target: "under 4",
        is_reached: wall < 4.0,
    })
}

/// What one storm came to.
struct Storm {
    /// Of the time the link takes for its bytes.
    wall: f64,
    bytes: usize,
    reads: usize,
    in_flight: u64,
    /// Microseconds, of another actor.
    p99_alone: f64,
    p99_beside: f64,
}

/// Many large actors restored at once, again and again, beside one that is asked in a closed loop all the time.
fn storms(place: &Place, address: SocketAddr) -> Result<Vec<Figure>> {
    get(address, "/actor/counter/bystander")?;
    let storms: Vec<Storm> =
        (0..place.flags.storms).map(|number| storm(place, address, number)).collect::<Result<_>>()?;
    let of = |value: fn(&Storm) -> f64| median(&mut storms.iter().map(value).collect::<Vec<_>>());
    let wall = of(|storm| storm.wall);
    let felt = of(|storm| storm.p99_beside / storm.p99_alone);
    let each: Vec<_> =
        storms.iter().map(|storm| format!("{:.0} to {:.0}", storm.p99_alone, storm.p99_beside)).collect();
    let most = |value: fn(&Storm) -> u64| storms.iter().map(value).max().unwrap_or(0);
    let (reads, in_flight) = (most(|storm| storm.reads as u64), most(|storm| storm.in_flight));
    Ok(vec![
        Figure {
            name: "32 actors of 8 MiB restored at once",
            measured: format!("{wall:.2} of what the link takes for {} MiB", storms[0].bytes >> 20),
            target: "under 1.3",
            is_reached: wall < 1.3,
        },
        Figure {
            name: "most of it in flight at once",
            measured: format!("{reads} reads, {} MiB", in_flight >> 20),
            target: "within 32 and 256 MiB",
            is_reached: reads <= BUDGET_READS && in_flight <= BUDGET_BYTES,
        },
        Figure {
            name: "p99 of an actor beside them",
            measured: format!("{felt:.2} of it alone; µs: {}", each.join(", ")),
            target: "under 1.2",
            is_reached: felt < 1.2,
        },
    ])
}

fn storm(place: &Place, address: SocketAddr, number: u16) -> Result<Storm> {
    let alone =
        on(&[place.cpus.0], move || closed_loop(address, &AtomicBool::new(false), Duration::from_secs(3)));
    let alone = alone.join().map_err(|_| anyhow::anyhow!("the bystander panicked"))??;
    place.bucket.take_served();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let bystander = on(&[place.cpus.0], move || closed_loop(address, &over, PATIENCE));
    let actors: Vec<_> = (0..STORM_ACTORS)
        .map(|actor| {
            let path = format!("/actor/sql/{}/size", storm_actor(number, actor));
            on(&place.cpus.1, move || get(address, &path))
        })
        .collect();
    for actor in actors {
        actor.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    is_over.store(true, Ordering::Relaxed);
    let beside = bystander.join().map_err(|_| anyhow::anyhow!("the bystander panicked"))??;
    let served = of(place.bucket.take_served(), "/wal");
    let bytes: usize = served.iter().map(|served| served.bytes).sum();
    let link = Duration::from_secs_f64(bytes as f64 / (place.flags.link_mib << 20) as f64);
    let (reads, in_flight) = most_at_once(&served);
    let p99 = |times: &Histogram<u64>| times.value_at_quantile(0.99) as f64;
    let wall = span(&served)?.as_secs_f64() / link.as_secs_f64();
    Ok(Storm { wall, bytes, reads, in_flight, p99_alone: p99(&alone), p99_beside: p99(&beside) })
}

fn get(address: SocketAddr, path: &str) -> Result<String> {
    let answer = Connection::open(address, PATIENCE)?.ask("GET", path, b"")?;
    ensure!(answer.status == 200, "{path}: {}", answer.text());
    Ok(answer.text())
}

fn closed_loop(address: SocketAddr, is_over: &AtomicBool, most: Duration) -> Result<Histogram<u64>> {
    let mut client = Connection::open(address, PATIENCE)?;
    let mut times = Histogram::new(3)?;
    let began = Instant::now();
    while !is_over.load(Ordering::Relaxed) && began.elapsed() < most {
        let asked = Instant::now();
        client.ask("GET", "/actor/counter/bystander", b"")?;
        times.record(micros(asked.elapsed()))?;
    }
    Ok(times)
}

/// The middle one; of an even number the later of the two. There is one at least.
fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    values[values.len() / 2]
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What was served of keys that contain `part`.
fn of(mut served: Vec<Served>, part: &str) -> Vec<Served> {
    served.retain(|served| served.key.contains(part) && matches!(&*served.kind, "GET" | "LIST"));
    served
}

fn count(served: &[Served], kind: &str, part: &str) -> usize {
    served.iter().filter(|served| served.kind == kind && served.key.contains(part)).count()
}

/// From the first request to the end of the last.
fn span(served: &[Served]) -> Result<Duration> {
    let first = served.iter().map(|served| served.arrived).min().context("nothing was read")?;
    let last = served.iter().map(|served| served.ended).max().context("nothing was read")?;
    Ok(last - first)
}

/// The most reads, and bytes of them, that were under way together.
fn most_at_once(served: &[Served]) -> (usize, u64) {
    let reads = || served.iter().filter(|served| served.kind == "GET");
    let at = |moment: Instant| reads().filter(move |read| read.arrived <= moment && moment < read.ended);
    let each = reads().map(|read| {
        let together = at(read.arrived);
        together.fold((0, 0), |(reads, bytes), read| (reads + 1, bytes + read.bytes as u64))
    });
    each.fold((0, 0), |(reads, bytes), one| (reads.max(one.0), bytes.max(one.1)))
}
