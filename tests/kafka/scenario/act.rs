//! What a case does, one action after the other.

use std::time::Duration;

use serde_json::json;
use tidegate::clock::Clock;

use super::check::{metric_faults, results};
use super::file::{Action, Admin, Assert, Kind, Produce, ProduceGen, WaitCompacted};
use super::names;
use super::wait::{pause, seen};
use super::world::World;
use crate::case_file::{self, FieldOrKafka};
use crate::support::cluster::Record;

impl World<'_> {
    /// Does all of them; `Err` names the one that failed.
    pub(super) fn act(&mut self, actions: &[Action]) -> Result<(), String> {
        for (number, action) in (1..).zip(actions) {
            self.act_once(&action.kind).map_err(|fault| {
                format!("action {number} of {}, {}\n  {fault}", actions.len(), action.written)
            })?;
        }
        Ok(())
    }

    fn act_once(&mut self, action: &Kind) -> Result<(), String> {
        // What is written after an end was asked for is for those that come next.
        if matches!(action, Kind::Produce(_) | Kind::ProduceGen(_) | Kind::Admin(_)) {
            self.wait_for_the_ending()?;
        }
        match action {
            Kind::Produce(produce) => self.produce(produce),
            Kind::ProduceGen(generate) => self.generate(generate),
            Kind::Transaction(step, id) => {
                self.written.transact(&self.cluster, &self.prefix, id, *step)
            }
            Kind::PauseTransaction => {
                self.written.pause_transaction();
                Ok(())
            }
            Kind::WaitUntil(until, limit) => self.wait_until(until, *limit),
            Kind::Sleep(time) => {
                pause(*time);
                Ok(())
            }
            Kind::Signal(signal, nth) => self.signal(*nth, signal),
            Kind::Start(nth) => self.start(*nth),
            Kind::Restart(nth) => {
                self.signal(*nth, "SIGTERM")?;
                self.start(*nth)
            }
            Kind::Broker(order) => self.order(order),
            Kind::Admin(admin) => self.administer(admin),
            Kind::Assert(assert) => self.assert(assert),
            Kind::Scrape(name) => {
                self.wait_until_counted()?;
                let scraped = self.scrape();
                self.scrapes.insert(name.clone(), scraped);
                Ok(())
            }
            Kind::KeepAlive => {
                let open = self.running().into_iter().filter_map(|service| {
                    service.try_connect("/metrics", Duration::from_secs(2), "keep-alive")
                });
                let open: Vec<_> = open.collect();
                self.kept_alive.extend(open);
                Ok(())
            }
            Kind::Repeat(times, actions) => (1..=*times).try_for_each(|nth| {
                self.act(actions).map_err(|fault| format!("the {nth}. of {times} times: {fault}"))
            }),
        }
    }

    fn produce(&mut self, produce: &Produce) -> Result<(), String> {
        let record = |record: &case_file::Record| {
            let bytes = |text: &String| text.clone().into_bytes();
            let headers = record.headers.iter();
            let written = Record {
                partition: record.partition,
                key: record.key.as_ref().map(bytes),
                payload: record.payload.clone(),
                headers: headers
                    .map(|(name, value)| (name.clone(), value.as_ref().map(bytes)))
                    .collect(),
                timestamp: record.kafka_timestamp_ms,
                ..Record::default()
            };
            (Some(record.id.clone()), written)
        };
        let topic = self.topic(&produce.topic);
        self.written.write(&self.cluster, &topic, produce.records.iter().map(record))
    }

    fn generate(&mut self, generate: &ProduceGen) -> Result<(), String> {
        let config = &self.scenario.service.config;
        let name = |field: &Option<String>, usual: &str| field.clone().unwrap_or(usual.to_owned());
        let (time_field, key_field) =
            (name(&config.timestamp_field, "ts"), name(&config.key_field, "k"));
        let keyed = matches!(config.key_source, FieldOrKafka::Kafka);
        let record = |nth: usize| {
            let key = format!("{}k{}", generate.prefix, nth % generate.keys);
            let time = generate.start + generate.step * i64::try_from(nth).unwrap();
            let mut payload = json!({ &time_field: time, &config.value_field: 1 });
            let (message_key, timestamp) =
                if keyed { (Some(key.clone()), Some(time)) } else { (None, None) };
            payload[&key_field] = key.into();
            let partition = generate.partitions[nth % generate.partitions.len()];
            let by_kafka = matches!(config.timestamp_source, FieldOrKafka::Kafka);
            let record = Record {
                key: message_key.map(String::into_bytes),
                timestamp: timestamp.filter(|_| by_kafka),
                ..Record::of(partition, payload.to_string())
            };
            (None, record)
        };
        let topic = self.topic(&generate.topic);
        self.written.write(&self.cluster, &topic, (0..generate.count).map(record))
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        let broker = self.broker.as_mut().ok_or("a broker that is not the case's own")?;
        match order {
            "stop" => broker.stop(),
            "SIGKILL" | "kill" => broker.kill(),
            "SIGSTOP" => broker.pause(),
            "SIGCONT" => broker.resume(),
            "start" => broker.start_again(),
            "restart" => {
                broker.stop();
                broker.start_again();
            }
            other => return Err(format!("nothing is known to do to a broker as {other}")),
        }
        self.broker_answers = ["start", "restart", "SIGCONT"].contains(&order);
        Ok(())
    }

    fn administer(&mut self, admin: &Admin) -> Result<(), String> {
        let mut done = 0;
        if let Some(delete) = &admin.delete_records {
            let topic = self.topic(&delete.topic);
            self.cluster.delete_before(&topic, delete.partition, delete.before_offset);
            done += 1;
        }
        if let Some(add) = &admin.add_partitions {
            self.cluster.grow(&self.topic(&add.topic), add.to);
            self.partitions.insert(add.topic.clone(), add.to);
            done += 1;
        }
        if let Some(name) = &admin.delete_topic {
            let topic = self.topic(name);
            self.cluster.delete(&topic);
            self.written.forget(&topic);
            done += 1;
        }
        if let Some(topic) = &admin.create_topic {
            self.create_topic(topic);
            done += 1;
        }
        if admin.delete_group_offsets.is_some() {
            // The broker refuses it while there are members, so it is the same.
            self.cluster.delete_group(&self.prefix);
            done += 1;
        }
        if let Some(wanted) = &admin.wait_compacted {
            self.wait_until_compacted(wanted)?;
            done += 1;
        }
        if done == 1 { Ok(()) } else { Err(format!("{done} known things to do")) }
    }

    /// Only what is before the segment that is written to is compacted. Records of transactions that are aborted make
    /// the broker begin a new one, and nobody reads them.
    fn wait_until_compacted(&mut self, wanted: &WaitCompacted) -> Result<(), String> {
        let topic = self.topic(&wanted.topic);
        let mut nudged: Option<Clock> = None;
        self.patiently(COMPACTED, |world| {
            if nudged.is_none_or(|since| since.monotonic().0 > NUDGE) {
                let nudge = Record::of(wanted.partition, "");
                world.cluster.produce_in_transaction(&topic, &[nudge], false);
                nudged = Some(Clock::start());
            }
            let records = world.cluster.read(&topic).into_iter();
            let of_it = records.filter(|record| record.partition == wanted.partition);
            let left: Vec<_> = of_it.map(|record| record.offset).collect();
            Ok(seen(left == wanted.remaining_offsets, || format!("the offsets {left:?} are there")))
        })
    }

    fn assert(&mut self, assert: &Assert) -> Result<(), String> {
        if let Some(exit) = &assert.exit {
            self.wait_for_exit(exit)?;
        }
        if let Some(panes) = assert.panes {
            let rows = results(self)?;
            if rows.len() != panes {
                return Err(format!("panes: expected {panes}, seen {}: {rows:?}", rows.len()));
            }
        }
        for (path, code) in &assert.http {
            let codes = self.codes(names::path(path));
            if codes.is_empty() || codes.iter().any(|seen| *seen != Some(*code)) {
                return Err(format!("{path}: expected {code}, seen {codes:?}"));
            }
        }
        let faults = metric_faults(self, &assert.metrics);
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

const COMPACTED: Duration = Duration::from_mins(2);
const NUDGE: Duration = Duration::from_secs(5);
