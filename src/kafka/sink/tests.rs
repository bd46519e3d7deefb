//! What the client does not come to an end of is given up, whatever the client library thinks of it.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::*;
use crate::config::{Inputs, Sources, load};
use crate::event_time::{Now, PartitionId, Sharding};
use crate::kafka::{Cluster, connect};
use crate::pipeline::CommitMark;

const JOB: &str = r#"
[kafka]
group_id = "given-up"

[[source]]
topic = "in"
timestamp = { field = "t", unit = "ms" }
watermark = { strategy = "ascending", idle_timeout = "30s" }
fields = { k = "/k" }

[window]
size = "10s"
allowed_lateness = "0s"

[key]
fields = ["k"]

[[aggregate]]
name = "n"
function = "count"

[results]
topic = "out"
[late]
topic = "late"
[dead_letter]
topic = "dead"
"#;

struct Running(Clock);

impl Time for Running {
    fn now(&self) -> Now {
        self.0.now()
    }
    fn wait(&self, duration: Duration) {
        std::thread::park_timeout(duration);
    }
    fn stopping(&self) -> bool {
        false
    }
}

fn sink(cluster: &MockCluster<'_, impl ProducerContext>) -> KafkaSink {
    for topic in ["in", "out", "late", "dead", "given-up-in-changelog"] {
        cluster.create_topic(topic, 1, 1).unwrap();
    }
    let file = std::env::temp_dir().join(format!("tidegate-sink-{}.toml", std::process::id()));
    std::fs::write(&file, JOB).unwrap();
    let servers = format!("kafka.bootstrap_servers={}", cluster.bootstrap_servers());
    let loaded = load(&Sources {
        files: vec![file.clone()],
        overrides: vec![servers],
        host_name: Some("one".to_owned()),
        ..Sources::default()
    });
    std::fs::remove_file(file).unwrap();
    let clock = Clock::start();
    let on_error = Arc::new(|_: &str, _: bool| {});
    let config = loaded.unwrap().config;
    let edges = connect(
        &config,
        &Inputs::new(&config),
        Cluster::Embedded,
        clock,
        0,
        &Running(clock),
        on_error,
    );
    edges.unwrap().unwrap().sink
}

fn offsets(offset: i64) -> NextOffsets {
    let mark = CommitMark { sequence: 1, sharding: Sharding::OneForAll };
    [(PartitionId { topic: 0, partition: 0 }, (offset, mark))].into()
}

#[test]
fn a_service_whose_producers_all_break_ends_and_says_how_often_it_tried() {
    let cluster = MockCluster::new(1).unwrap();
    let mut sink = sink(&cluster);
    for time in 0..8 {
        let broken = sink.break_down("a fault".to_owned());
        assert!(matches!(broken, SinkError::Abort(_)), "at {time}: {broken}");
        sink.abort().unwrap();
    }
    let broken = sink.break_down("a fault".to_owned());
    let SinkError::Fatal(cause) = &broken else { panic!("{broken}") };
    assert!(cause.starts_with("a fault") && cause.contains("8 times"), "{cause}");
}

#[test]
fn two_processes_of_one_name_are_told_apart_in_the_group() {
    let clients = || sink(&MockCluster::new(1).unwrap()).clients;
    let (one, other) = (clients(), clients());
    assert_eq!(one.client_id, other.client_id);
    assert_ne!(one.member_id, other.member_id);
    assert!(
        one.member_id.starts_with(&one.client_id) && other.member_id.starts_with(&other.client_id)
    );
}

#[test]
fn a_commit_ends_the_count_of_broken_producers() {
    let cluster = MockCluster::new(1).unwrap();
    let mut sink = sink(&cluster);
    for time in 0..9 {
        let broken = sink.break_down("a fault".to_owned());
        assert!(matches!(broken, SinkError::Abort(_)), "at {time}: {broken}");
        sink.abort().unwrap();
        sink.commit(&offsets(time)).unwrap();
    }
}

/// The client waits for news of its brokers, and there are none as long as all of them are well.
#[test]
fn a_lookup_of_the_coordinator_that_is_lost_ends_the_producer_and_not_the_service() {
    let cluster = MockCluster::new(1).unwrap();
    let mut sink = sink(&cluster);
    // More than one: the consumer, which is closing, may be looking for it as well.
    let lost = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR; 50];
    cluster.request_errors(RDKafkaApiKey::FindCoordinator, &lost);
    let given_up = sink.commit(&offsets(1)).unwrap_err();
    cluster.clear_request_errors(RDKafkaApiKey::FindCoordinator);
    assert!(matches!(given_up, SinkError::Abort(_)), "{given_up}");
    sink.abort().unwrap();
    sink.commit(&offsets(1)).unwrap();
}
