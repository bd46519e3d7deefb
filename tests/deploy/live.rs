//! The rules and the dashboards on a real service, which a real Prometheus scrapes.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, process};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tidegate::clock::Clock;

use crate::dashboards::{filled, panels, prometheus_dashboards, queries};
use crate::documents::{RULES, path};
use crate::rules::{alerts, recorded};
use crate::support::job::{Job, keyed, wait_for_offset};
use crate::support::process::Tidegate;

/// Debian's Prometheus on this machine, with everything of its own in a folder.
struct Prometheus {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Prometheus {
    /// Starts one that scrapes this address every second and evaluates our rules as often.
    fn start(target: &str) -> Self {
        let folder = env::temp_dir().join(format!("tidegate-prometheus-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs:\n  - {{job_name: orders, static_configs: [{{targets: [{target:?}]}}]}}\n",
            path(RULES).display(),
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        // Free a moment ago; who else takes it in between fails the test, which names it.
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let log = File::create(folder.join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("prometheus: {error}; it is Debian's package, and `tests/run` installs it")
            });
        Self { child, folder, port }
    }

    /// The data of an answer of its API; `None` while it does not answer.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // An answer to HTTP/1.0 is in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        if head.split(' ').nth(1) == Some("503") {
            return None; // it is starting
        }
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// What a query returns.
    fn query(&self, query: &str) -> Vec<Value> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let data = self.get(&format!("/api/v1/query?query={query}"));
        data.and_then(|data| data["result"].as_array().cloned()).unwrap_or_default()
    }

    /// All rules with their state.
    fn rules(&self) -> Vec<Value> {
        let data = self.get("/api/v1/rules").unwrap_or_default();
        let groups = data["groups"].as_array().into_iter().flatten();
        groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            println!("the log of Prometheus:\n{log}");
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Two subtasks with a partition each, which stand two hours behind: one window has fired, one is open.
fn service(job: &Job) -> Tidegate {
    let mut service = job.run(&["--set", "service.subtasks=2"]);
    let start = Clock::wall().0 - 7_200_000;
    for partition in 0..2 {
        let records: Vec<_> =
            (0..60).map(|i| keyed(partition, "a", start + i * 10_000, 1)).collect();
        job.produce(&records);
    }
    wait_for_offset(&mut service, 120);
    service.wait_until("windows have fired and are committed", |service| {
        service.metric_sum("tidegate_window_fires_total", "") > 0.0
            && service.metric_sum("tidegate_watermark_holder", "") >= 2.0
    });
    service
}

fn job() -> Job {
    let watermark = "max_out_of_orderness = \"0s\", idle_timeout = \"off\"";
    Job::new("deployed", 2)
        .replace("fields = [\"k\"]", "from = \"message\"")
        .replace("emit_interval = \"0ms\"", "emit_interval = \"200ms\"")
        .replace(watermark, "strategy = \"adaptive\", idle_timeout = \"10m\"")
}

#[test]
fn prometheus_evaluates_every_rule_and_every_panel_has_data() {
    let job = job();
    let mut service = service(&job);
    let prometheus = Prometheus::start(&service.address());

    let expected = alerts().len() + recorded().len();
    let mut unhealthy = Vec::new();
    service.wait_until("all rules are healthy", |_| {
        let rules = prometheus.rules();
        let is_bad = |rule: &&Value| rule["health"] != "ok";
        unhealthy = rules.iter().filter(is_bad).map(ToString::to_string).collect();
        rules.len() == expected && unhealthy.is_empty()
    });
    assert_eq!(unhealthy, [] as [String; 0]);

    // What stands two hours behind is about to be told of, by its name.
    service.wait_until("the lag is pending", |_| {
        let rules = prometheus.rules();
        let lag = rules.iter().find(|rule| rule["name"] == "TidegateWatermarkLagHigh").unwrap();
        let alerts = lag["alerts"].as_array().unwrap();
        let named = |partition: usize| {
            let text = format!("Partition deployed-in/{partition} holds it back");
            alerts
                .iter()
                .any(|alert| alert["annotations"]["description"].as_str().unwrap().contains(&text))
        };
        alerts.len() == 2 && named(0) && named(1)
    });
    let holder = "job:tidegate_watermark_timestamp_seconds:bottomk1";
    service.wait_until("the holder of the group is recorded", |_| {
        let found = prometheus.query(holder);
        found.len() == 1 && found[0]["metric"]["topic"] == "deployed-in"
    });

    let dashboards = prometheus_dashboards();
    let mut asked = 0;
    for (name, dashboard) in &dashboards {
        for panel in panels(dashboard) {
            for query in queries(panel) {
                asked += 1;
                let filled = filled(query, "10s");
                let what = format!("{name}: {} has data\n{filled}", panel["title"]);
                service.wait_until(&what, |_| !prometheus.query(&filled).is_empty());
            }
        }
    }
    assert!(asked > 50, "{asked}");
    service.stop();
}

#[test]
fn promtool_takes_what_the_service_exports() {
    let job = Job::new("linted", 1);
    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 1_000, 1)]);
    wait_for_offset(&mut service, 1);
    let (_, text) = service.get("/metrics");
    let file = env::temp_dir().join(format!("tidegate-metrics-{}.txt", process::id()));
    fs::write(&file, text).unwrap();
    promtool_reads(&file);
    fs::remove_file(file).unwrap();
    service.stop();
}

/// `promtool check metrics` reads its standard input.
fn promtool_reads(file: &std::path::Path) {
    let output = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(File::open(file).unwrap())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
