//! What the client does not come to an end of is given up, whatever the client library thinks of it.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::*;
use crate::config::{Sources, load};
use crate::event_time::{Now, PartitionId};
use crate::kafka::{Cluster, connect};

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
    let edges =
        connect(&loaded.unwrap().config, Cluster::Embedded, clock, 0, &Running(clock), on_error);
    edges.unwrap().unwrap().sink
}

fn offsets(offset: i64) -> NextOffsets {
    let mark = CommitMark { sequence: 1, sharding: Sharding::OneForAll };
    [(PartitionId { topic: 0, partition: 0 }, (offset, mark))].into()
}

/// The client waits for news of its brokers, and there are none as long as all of them are well.
#[test]
fn a_lookup_of_the_coordinator_that_is_lost_ends_the_producer_and_not_the_service() {
    let cluster = MockCluster::new(1).unwrap();
    let mut sink = sink(&cluster);
    cluster.request_errors(
        RDKafkaApiKey::FindCoordinator,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR],
    );
    let given_up = sink.commit(&offsets(1)).unwrap_err();
    assert!(matches!(given_up, SinkError::Abort(_)), "{given_up}");
    sink.abort().unwrap();
    sink.commit(&offsets(1)).unwrap();
}
