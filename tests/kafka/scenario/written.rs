//! What a case has written: every record with its place, and the transactions it is in.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::producer::{BaseProducer, Producer as _};

use super::file::TransactionStep;
use crate::support::cluster::{Cluster, Record, send};

/// A record that was written.
pub(super) struct Sent {
    /// How the case calls it; what is generated has no name.
    pub(super) id: Option<String>,
    pub(super) topic: String,
    pub(super) record: Record,
    /// The transaction it is in, while that is open.
    transaction: Option<String>,
}

#[derive(Default)]
pub(super) struct Written {
    sent: Vec<Sent>,
    /// What was aborted is remembered only by its name and place.
    aborted: Vec<Sent>,
    transactions: BTreeMap<String, BaseProducer>,
    current: Option<String>,
}

impl Written {
    /// Writes records in their order, within the transaction that is going on, and waits until the broker has them.
    pub(super) fn write(
        &mut self,
        cluster: &Cluster,
        topic: &str,
        records: impl IntoIterator<Item = (Option<String>, Record)>,
    ) -> Result<(), String> {
        let alone;
        let producer = if let Some(id) = &self.current {
            &self.transactions[id]
        } else {
            alone = cluster.producer();
            &alone
        };
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        for (id, mut record) in records {
            let end = next
                .entry(record.partition)
                .or_insert_with(|| cluster.end(topic, record.partition));
            record.offset = *end;
            *end += 1;
            send(producer, topic, &record);
            let (topic, transaction) = (topic.to_owned(), self.current.clone());
            self.sent.push(Sent { id, topic, record, transaction });
        }
        producer.flush(PATIENCE).map_err(|error| format!("writing to {topic}: {error}"))?;
        for (partition, next) in next {
            let end = cluster.end(topic, partition);
            if end != next {
                return Err(format!(
                    "{topic}-{partition} ends at {end}, not {next}: not all is there"
                ));
            }
        }
        Ok(())
    }

    /// Begins or ends a transaction.
    pub(super) fn transact(
        &mut self,
        cluster: &Cluster,
        prefix: &str,
        id: &str,
        step: TransactionStep,
    ) -> Result<(), String> {
        let failed = |error| format!("transaction {id}: {error}");
        let begun = self.sent.iter_mut().filter(|sent| sent.transaction.as_deref() == Some(id));
        match step {
            TransactionStep::Begin => {
                if !self.transactions.contains_key(id) {
                    let producer = cluster.transactional(&format!("{prefix}-{id}"));
                    producer.init_transactions(PATIENCE).map_err(failed)?;
                    self.transactions.insert(id.to_owned(), producer);
                }
                self.transactions[id].begin_transaction().map_err(failed)?;
                self.current = Some(id.to_owned());
                return Ok(());
            }
            TransactionStep::Commit => {
                begun.for_each(|sent| sent.transaction = None);
                self.transactions[id].commit_transaction(PATIENCE).map_err(failed)?;
            }
            TransactionStep::Abort => {
                let is_of = |sent: &mut Sent| sent.transaction.as_deref() == Some(id);
                self.aborted.extend(self.sent.extract_if(.., is_of));
                self.transactions[id].abort_transaction(PATIENCE).map_err(failed)?;
            }
        }
        self.current.take_if(|current| current == id);
        Ok(())
    }

    /// What is written from now on is in no transaction; one that is open stays so.
    pub(super) fn pause_transaction(&mut self) {
        self.current = None;
    }

    /// What was in a topic that has been deleted is of no interest any more.
    pub(super) fn forget(&mut self, topic: &str) {
        self.sent.retain(|sent| sent.topic != topic);
        self.aborted.retain(|sent| sent.topic != topic);
    }

    /// The records of a topic that a `read_committed` reader may see.
    pub(super) fn visible<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a Record> {
        let visible = self.sent.iter().filter(|sent| sent.transaction.is_none());
        visible.filter(move |sent| sent.topic == topic).map(|sent| &sent.record)
    }

    /// How the case calls the record of this place.
    pub(super) fn id(&self, topic: &str, partition: i32, offset: i64) -> String {
        let is_there = |sent: &&Sent| {
            sent.topic == topic
                && (sent.record.partition, sent.record.offset) == (partition, offset)
        };
        let id = self.sent.iter().chain(&self.aborted).find(is_there).and_then(|s| s.id.clone());
        id.unwrap_or_else(|| format!("{topic}-{partition}@{offset}"))
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
