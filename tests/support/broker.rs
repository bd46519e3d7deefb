//! A real Kafka broker for a test: one process on this machine, started from the jars of
//! `tests/kafka-dist`.
//!
//! [`Broker::shared`] is for tests that only need a broker: they share one per test process, and
//! choose topic names that no other test chooses. [`Broker::start`] is for tests that kill, stop or
//! pause it.
//!
//! No broker outlives its test process, however that ends. The JVM is the child of a small shell,
//! its *keeper*, whose standard input is a pipe from the test process. When the pipe closes, the
//! keeper kills the JVM and removes its data; the kernel closes it even for a test process that was
//! itself killed. Signals go through the keeper too: a parent knows that the process id is still
//! its child's.
#![allow(clippy::allow_attributes, dead_code, reason = "no test target uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::mem;
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// A broker of the test's own. Dropping it kills it and removes its data.
#[derive(Debug)]
pub(crate) struct Broker {
    port: u16,
    dir: PathBuf,
    run: Run,
}

impl Broker {
    /// The bootstrap address of a broker that the tests of this process share.
    ///
    /// It is that of `KAFKA_BOOTSTRAP` where this is set, which then must be reachable: a test
    /// never passes for want of its broker.
    pub(crate) fn shared() -> String {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        match env::var("KAFKA_BOOTSTRAP") {
            Ok(given) if !given.is_empty() => {
                assert_reachable(&given);
                given
            }
            _ => SHARED.get_or_init(Self::start).bootstrap(),
        }
    }

    /// Starts a broker and waits until it answers, which takes a few seconds.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more server properties; they win over those that every broker here has. `{port}`,
    /// `{controller}`, and `{third}` to `{sixth}` in them stand for its ports.
    pub(crate) fn start_with(properties: &[(&str, &str)]) -> Self {
        Self::start_with_users(properties, &[])
    }

    /// The same with users from the beginning, each as `kafka-storage.sh format --add-scram` takes it.
    pub(crate) fn start_with_users(properties: &[(&str, &str)], users: &[String]) -> Self {
        let mut broker = Self::format_with_users(Place::reserve(), properties, users);
        broker.wait_until_formatted();
        broker.start_again();
        broker
    }

    /// Begins to make its data; [`Self::wait_until_formatted`] and [`Self::launch`] go on from there.
    pub(super) fn format(place: Place, properties: &[(&str, &str)]) -> Self {
        Self::format_with_users(place, properties, &[])
    }

    fn format_with_users(place: Place, properties: &[(&str, &str)], users: &[String]) -> Self {
        let fetched = Command::new(KAFKA).arg("fetch").status().unwrap();
        assert!(fetched.success(), "no jars of Kafka: `{KAFKA} fetch` failed");
        let Place { port, dir } = place;
        fs::write(dir.join("server.properties"), server_properties(port, properties)).unwrap();
        let tool =
            ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties"];
        let users = users.iter().flat_map(|user| ["--add-scram", user]);
        let run = Run::spawn(&dir, &tool.into_iter().chain(users).collect::<Vec<_>>());
        Self { port, dir, run }
    }

    pub(super) fn wait_until_formatted(&mut self) {
        let status = self.run.wait_for_end();
        assert!(status == "0", "formatting its data failed\n{}", self.run.log.tail());
    }

    /// What a client has to set as `bootstrap.servers`. It stays the same over
    /// [`Self::start_again`].
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The same for one of its other ports, 2 to 5.
    pub(crate) fn at(&self, nth: u16) -> String {
        format!("127.0.0.1:{}", self.port + nth)
    }

    /// Ends it as a power cut would (SIGKILL). Its data stays.
    pub(crate) fn kill(&mut self) {
        self.run.signal("KILL");
        self.run.wait_for_end();
    }

    /// Ends it in good order (SIGTERM), also when it is paused. Its data stays.
    pub(crate) fn stop(&mut self) {
        self.run.signal("TERM");
        self.run.signal("CONT");
        self.run.wait_for_end();
    }

    /// Starts it after [`Self::kill`] or [`Self::stop`], with the same port and data, and waits
    /// until it answers.
    pub(crate) fn start_again(&mut self) {
        self.launch();
        self.wait_until_started();
    }

    /// The same without waiting.
    pub(crate) fn launch(&mut self) {
        assert!(self.run.reaped, "the start of a broker that was neither killed nor stopped");
        let next = Run::spawn(&self.dir, &["kafka.Kafka", "server.properties"]);
        // The next keeper answers for the data now, so the old one may go without removing it.
        mem::replace(&mut self.run, next).leave();
    }

    /// Waits until it answers after [`Self::launch`].
    pub(crate) fn wait_until_started(&self) {
        self.run.log.wait("start", |log| log.started);
    }

    /// Whether it has come so far since [`Self::launch`].
    pub(crate) fn has_started(&self) -> bool {
        self.run.log.seen.lock().unwrap().started
    }

    /// The last lines of its log.
    pub(crate) fn tail(&self) -> String {
        self.run.log.tail()
    }

    /// Halts it until [`Self::resume`] (SIGSTOP): connections stay open and nothing answers, as on
    /// a frozen machine.
    pub(crate) fn pause(&mut self) {
        self.run.signal("STOP");
    }

    /// Lets it go on after [`Self::pause`] (SIGCONT).
    pub(crate) fn resume(&mut self) {
        self.run.signal("CONT");
    }
}

/// A class of Kafka that runs, or ran, under its keeper.
#[derive(Debug)]
struct Run {
    keeper: Child,
    /// One line for each order carried out: the exit status of `kill` or, for `reap`, of the class.
    answers: BufReader<ChildStdout>,
    log: Arc<Log>,
    reaped: bool,
}

/// `$1` is the folder of the data, the rest the command.
const KEEPER: &str = r#"
dir=$1
shift
cd "$dir" || exit
"$@" </dev/null >&2 &
pid=$!
# From here on only the class holds the pipe of its log, so that the log ends when the class does.
exec 2>/dev/null
# The kernel hangs up on a group whose parent has gone while one in it was paused.
trap '' HUP
while read -r order; do
  case $order in
  leave) exit ;;
  reap) wait "$pid"; set -- "$?"; pid= ;;
  *) kill -s "$order" "$pid"; set -- "$?" ;;
  esac
  echo "$1"
done
[ -z "$pid" ] || kill -s KILL "$pid"
wait
cd / && rm -rf "$dir"
"#;

impl Run {
    fn spawn(dir: &Path, class_and_args: &[&str]) -> Self {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(dir)
            .args([KAFKA, "run"])
            .args(class_and_args)
            // Ctrl-C at the terminal ends the test process; the keeper then still has its work to do.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Log::default());
        let output = keeper.stderr.take().unwrap();
        thread::spawn({
            let log = Arc::clone(&log);
            move || log.follow(output)
        });
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        Self { keeper, answers, log, reaped: false }
    }

    /// Sends a signal, and returns when it is sent. It fails the test if the broker has ended.
    fn signal(&mut self, name: &str) {
        let ended = self.log.seen.lock().unwrap().ended;
        assert!(
            !ended && self.order(name) == "0",
            "no broker to send SIG{name} to\n{}",
            self.log.tail()
        );
    }

    /// Waits for the end and returns the exit status.
    fn wait_for_end(&mut self) -> String {
        self.log.wait("end", |log| log.ended);
        self.reaped = true;
        self.order("reap")
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.keeper.stdin.as_ref().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    /// Ends the keeper and leaves the data to the next.
    fn leave(self) {
        writeln!(self.keeper.stdin.as_ref().unwrap(), "leave").unwrap();
    }
}

impl Drop for Run {
    /// Closes the pipe, which is the keeper's order to clean up unless it was told to leave, and
    /// waits for its end.
    fn drop(&mut self) {
        self.keeper.wait().unwrap();
    }
}

/// The last lines of a log, and what they tell about the broker.
#[derive(Debug, Default)]
struct Log {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    tail: VecDeque<String>,
    started: bool,
    ended: bool,
}

impl Log {
    fn follow(&self, output: impl Read) {
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line.unwrap()).into_owned();
            let mut seen = self.seen.lock().unwrap();
            seen.started |= line.contains("Kafka Server started");
            if seen.tail.len() == TAIL_LINES {
                seen.tail.pop_front();
            }
            seen.tail.push_back(line);
            self.changed.notify_all();
        }
        self.seen.lock().unwrap().ended = true;
        self.changed.notify_all();
    }

    /// Waits until `done`. After the end of the log nothing more can become done.
    fn wait(&self, what: &str, done: impl Fn(&Seen) -> bool) {
        let seen = self.seen.lock().unwrap();
        let (seen, _) = self
            .changed
            .wait_timeout_while(seen, DEADLINE, |seen| !seen.ended && !done(seen))
            .unwrap();
        let (done, ended) = (done(&seen), seen.ended);
        drop(seen);
        let how = if ended { "it ended".to_owned() } else { format!("not within {DEADLINE:?}") };
        assert!(done, "the broker did not {what}: {how}\n{}", self.tail());
    }

    fn tail(&self) -> String {
        let seen = self.seen.lock().unwrap();
        seen.tail
            .iter()
            .fold("The end of its log:\n".to_owned(), |all, line| all + "  " + line + "\n")
    }
}

/// Free ports in a row, for clients, for the controller, and for whatever listeners a test adds, and the folder whose name reserves them among the tests that run
/// at the same time.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) port: u16,
    dir: PathBuf,
}

impl Place {
    /// The ports are below those that systems give to outgoing connections. From among these, a client that tries again
    /// and again to reach a killed broker would one day get the broker's own port, and talk to itself. No two brokers of
    /// a process get the same ports, so that a client which has lost its broker never finds another's.
    pub(super) fn reserve() -> Self {
        const FIRST: u16 = 10_000;
        const PLACES: u32 = 3_000;
        static TRIED: AtomicU32 = AtomicU32::new(0);
        for _ in 0..PLACES {
            let nth = TRIED.fetch_add(1, Ordering::Relaxed);
            let row = process::id().wrapping_mul(16).wrapping_add(nth) % PLACES;
            let port = FIRST + PORTS * u16::try_from(row).unwrap();
            let dir = env::temp_dir().join(format!("tidegate-broker-{port}"));
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let place = Self { port, dir };
            let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
            if (port..port + PORTS).all(is_free) {
                return place;
            }
            fs::remove_dir(&place.dir).unwrap();
        }
        panic!(
            "no folder can be made in {}, or no port from {FIRST} up is free",
            env::temp_dir().display()
        );
    }

    pub(super) fn controller(&self) -> u16 {
        self.port + 1
    }
}

fn server_properties(port: u16, more: &[(&str, &str)]) -> String {
    let controller = port + 1;
    let mut properties = format!(
        "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
log.dirs=data
auto.create.topics.enable=false

# One broker, little disk, and no waiting for members that will not come:
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0

# What a test wants to see in seconds: a killed broker back, which it is only when its old session
# has ended; the loss of a group member; retention.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=5000
"
    );
    for (key, value) in more {
        let value = value
            .replace("{port}", &port.to_string())
            .replace("{controller}", &controller.to_string())
            .replace("{third}", &(port + 2).to_string())
            .replace("{fourth}", &(port + 3).to_string())
            .replace("{fifth}", &(port + 4).to_string())
            .replace("{sixth}", &(port + 5).to_string());
        writeln!(properties, "{key}={value}").unwrap();
    }
    properties
}

fn assert_reachable(bootstrap: &str) {
    let reach = |server: &str| {
        let mut error = io::Error::other("no address");
        for address in server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(_) => return Ok(()),
                Err(e) => error = e,
            }
        }
        Err(error)
    };
    let errors: Vec<_> =
        bootstrap.split(',').filter_map(|server| reach(server.trim()).err()).collect();
    let servers = bootstrap.split(',').count();
    assert!(
        errors.len() < servers,
        "KAFKA_BOOTSTRAP is {bootstrap}, where no broker can be reached: {errors:?}"
    );
}

/// How many ports each broker has.
const PORTS: u16 = 6;

const KAFKA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka-dist/kafka");
const CLUSTER_ID: &str = "dGlkZWdhdGUtdGVzdHMtMA"; // 16 bytes in base64: "tidegate-tests-0"
const DEADLINE: Duration = Duration::from_mins(2);
const TAIL_LINES: usize = 40;
