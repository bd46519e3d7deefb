//! What only grows: the sum of all commits so far, and what happened to the client.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::family::{Family, count};
use super::{AdminCall, AdminOutcome, CommitOutcome, RebalanceEvent, Scrape, Sources};
use crate::codec::Reason;
use crate::event_time::{EventTime, LateCause, PartitionId, Timing};
use crate::insight::live::Outcomes;
use crate::insight::{Distribution, PartitionTally, RestoreCause, Tally, TopicTally};

/// Everything counted since the start.
#[derive(Clone, Default)]
pub(super) struct Totals {
    records: Tally,
    result_latency: Distribution,
    commits: BTreeMap<CommitOutcome, u64>,
    rebalances: BTreeMap<RebalanceEvent, u64>,
    restores: BTreeMap<(u16, RestoreCause), u64>,
    restored_entries: u64,
    kafka_errors: BTreeMap<(String, bool), u64>,
    admin_requests: BTreeMap<(AdminCall, AdminOutcome), u64>,
}

impl Totals {
    /// Lets the counters of a partition exist.
    pub(super) fn create(&mut self, partition: PartitionId) {
        self.records.partition(partition);
    }

    pub(super) fn records(&self) -> &Tally {
        &self.records
    }

    pub(super) fn outcomes(&self) -> Outcomes {
        let aborts = self.commits.get(&CommitOutcome::Aborted).copied().unwrap_or_default();
        Outcomes::new(&self.records, aborts)
    }

    /// Adds what a commit that ended at this time has made visible.
    pub(super) fn add(&mut self, tally: &Tally, now: EventTime) {
        let Tally {
            partitions,
            topics,
            on_time,
            dead_letters,
            panes,
            panes_undeliverable,
            windows_freed,
            timestamps_replaced,
            watermark_regressions,
        } = tally;
        for (id, partition) in partitions {
            add_partition(self.records.partition(*id), partition);
        }
        for (topic, more) in topics {
            self.records.topics.entry(*topic).or_default().merge(more);
        }
        for (end, panes) in on_time {
            let latency = if *end < now { end.behind(now) } else { Duration::ZERO };
            self.result_latency.add(latency, *panes);
        }
        for (key, more) in dead_letters {
            *self.records.dead_letters.entry(*key).or_default() += more;
        }
        for (timing, more) in panes {
            *self.records.panes.entry(timing).or_default() += more;
        }
        self.records.panes_undeliverable += panes_undeliverable;
        self.records.windows_freed += windows_freed;
        self.records.timestamps_replaced += timestamps_replaced;
        self.records.watermark_regressions += watermark_regressions;
    }

    pub(super) fn commit(&mut self, outcome: CommitOutcome) {
        *self.commits.entry(outcome).or_default() += 1;
    }

    pub(super) fn rebalance(&mut self, event: RebalanceEvent) {
        *self.rebalances.entry(event).or_default() += 1;
    }

    pub(super) fn restore(&mut self, subtask: u16, cause: RestoreCause, entries: usize) {
        *self.restores.entry((subtask, cause)).or_default() += 1;
        self.restored_entries += u64::try_from(entries).unwrap_or(u64::MAX);
    }

    pub(super) fn admin_request(&mut self, call: AdminCall, outcome: AdminOutcome) {
        *self.admin_requests.entry((call, outcome)).or_default() += 1;
    }

    pub(super) fn kafka_error(&mut self, code: &str, fatal: bool) {
        let key = (code.to_owned(), fatal);
        let full = self.kafka_errors.len() >= KAFKA_ERROR_CODES;
        let key = if full && !self.kafka_errors.contains_key(&key) {
            ("other".to_owned(), fatal)
        } else {
            key
        };
        *self.kafka_errors.entry(key).or_default() += 1;
    }
}

fn add_partition(total: &mut PartitionTally, more: &PartitionTally) {
    let PartitionTally {
        records,
        bytes,
        tombstones,
        heartbeats,
        refused: _,
        ignored,
        late,
        refired,
        to_idle,
        to_active,
        missing,
        pauses,
    } = more;
    total.records += records;
    total.bytes += bytes;
    total.tombstones += tombstones;
    total.heartbeats += heartbeats;
    total.ignored += ignored;
    for (total, more) in total.late.iter_mut().zip(late) {
        *total += more;
    }
    total.refired += refired;
    total.to_idle += to_idle;
    total.to_active += to_active;
    total.missing += missing;
    total.pauses += pauses;
}

pub(super) fn families(scrape: &Scrape, sources: &Sources, totals: &Totals) -> Vec<Family> {
    let mut families = by_topic(sources, &totals.records);
    families.extend(by_partition(sources, &totals.records));
    families.extend(distributions(sources, totals));
    families.extend(of_windows(&totals.records));
    families.extend(of_client(totals));
    families.extend(of_process(totals));
    families.extend(of_subtasks(scrape, totals));
    families
}

/// What each subtask must be seen to do, since a sum would hide one that does not.
fn of_subtasks(scrape: &Scrape, totals: &Totals) -> Vec<Family> {
    let mut ticks = Family::counter(
        "tidegate_watermark_ticks_total",
        "Periodic watermark emissions; it stands still only if the subtask's loop does.",
    );
    let mut restores = Family::counter(
        "tidegate_restores_total",
        "Times a subtask read back what open windows held, by what made it necessary.",
    );
    for (number, ticked) in (0..).zip(&scrape.ticks) {
        let subtask = number.to_string();
        let subtask = ("subtask", subtask.as_str());
        ticks.push(&[subtask], count(ticked.load(Ordering::Relaxed)));
        for cause in RestoreCause::ALL {
            let times = totals.restores.get(&(number, cause)).copied().unwrap_or(0);
            restores.push(&[subtask, ("cause", cause.name())], count(times));
        }
    }
    let entries = Family::counter(
        "tidegate_restored_entries_total",
        "(window, key) entries read back from the changelog.",
    );
    vec![ticks, restores, entries.with(&[], count(totals.restored_entries))]
}

fn by_topic(sources: &Sources, records: &Tally) -> Vec<Family> {
    type Value = fn(&PartitionTally) -> u64;
    let sums: [(&str, &'static str, Value); 4] = [
        ("tidegate_record_bytes_in_total", "Payload bytes of the records read.", |p| p.bytes),
        ("tidegate_tombstones_total", "Records without a payload: counted, nothing else.", |p| {
            p.tombstones
        }),
        (
            "tidegate_heartbeats_total",
            "Records that are signs of life (source.heartbeat): counted, in no window.",
            |p| p.heartbeats,
        ),
        (
            "tidegate_records_ignored_total",
            "Records of a partition that was not assigned any more: its new owner reads them.",
            |p| p.ignored,
        ),
    ];
    let mut dead_letters = Family::counter(
        "tidegate_dead_letter_records_total",
        "Records that could not be used, by reason; each is in the dead-letter topic.",
    );
    let mut families = Vec::new();
    for (name, help, value) in sums {
        let mut family = Family::counter(name, help);
        for (number, topic) in (0..).zip(&sources.topics) {
            let of_topic = records.partitions.iter().filter(|(id, _)| id.topic == number);
            let sum = of_topic.map(|(_, partition)| value(partition)).sum();
            family.push(&[("topic", topic)], count(sum));
        }
        families.push(family);
    }
    for (number, topic) in (0..).zip(&sources.topics) {
        for reason in Reason::ALL {
            let letters = records.dead_letters.get(&(number, reason)).copied().unwrap_or(0);
            dead_letters.push(&[("topic", topic), ("reason", reason.name())], count(letters));
        }
    }
    families.push(dead_letters);
    families
}

/// How far records were apart from what they are measured against.
fn distributions(sources: &Sources, totals: &Totals) -> Vec<Family> {
    type Value = fn(&TopicTally) -> &Distribution;
    let of_topics: [(&str, &'static str, Value); 4] = [
        (
            "tidegate_out_of_orderness_seconds",
            "How far records were behind the greatest event time of their partition.",
            |topic| &topic.out_of_orderness,
        ),
        (
            "tidegate_event_time_lag_seconds",
            "How far the event time of records was behind the wall clock when they were read.",
            |topic| &topic.event_time_lag,
        ),
        (
            "tidegate_late_by_seconds",
            "How far records in the late topic were behind the clock they were judged by.",
            |topic| &topic.late_by,
        ),
        (
            "tidegate_interarrival_seconds",
            "Gaps between records of a partition by their Kafka timestamps.",
            |topic| &topic.interarrival,
        ),
    ];
    let mut latency = Family::histogram(
        "tidegate_result_latency_seconds",
        "Time from the end of a window to the end of the commit with its panes that were on time.",
    );
    latency.push_all(&[], &totals.result_latency);
    let mut families = vec![latency];
    for (name, help, value) in of_topics {
        let mut family = Family::histogram(name, help);
        for (number, topic) in (0..).zip(&sources.topics) {
            let none = TopicTally::default();
            let tally = totals.records.topics.get(&number).unwrap_or(&none);
            family.push_all(&[("topic", topic)], value(tally));
        }
        families.push(family);
    }
    families
}

fn by_partition(sources: &Sources, records: &Tally) -> Vec<Family> {
    let mut read = Family::counter("tidegate_records_in_total", "Records read and committed.");
    let mut missing = Family::counter(
        "tidegate_records_missing_total",
        "Records that had been deleted before they were read.",
    );
    let mut late = Family::counter(
        "tidegate_late_records_total",
        "Records whose window had fired: refired (cause within_lateness), or in the late topic by cause.",
    );
    let mut transitions = Family::counter(
        "tidegate_partition_idle_transitions_total",
        "Times the partition fell idle or came back.",
    );
    let mut pauses = Family::counter(
        "tidegate_partition_pauses_total",
        "Times the partition was paused, since it was read too far ahead of the watermark (alignment.max_drift).",
    );
    for (id, tally) in &records.partitions {
        let partition = id.partition.to_string();
        let of = [("topic", sources.topic(id.topic)), ("partition", partition.as_str())];
        let [topic, partition] = of;
        read.push(&of, count(tally.records));
        missing.push(&of, count(tally.missing));
        pauses.push(&of, count(tally.pauses));
        let by_cause = LateCause::ALL.iter().map(|cause| (cause.name(), "late_topic"));
        let refired = [("within_lateness", "refired")];
        let counts = tally.late.iter().chain([&tally.refired]);
        for ((cause, disposition), records) in by_cause.chain(refired).zip(counts) {
            let labels = [topic, partition, ("cause", cause), ("disposition", disposition)];
            late.push(&labels, count(*records));
        }
        for (to, changes) in [("idle", tally.to_idle), ("active", tally.to_active)] {
            transitions.push(&[topic, partition, ("to", to)], count(changes));
        }
    }
    vec![read, missing, late, transitions, pauses]
}

fn of_windows(records: &Tally) -> Vec<Family> {
    let mut fires = Family::counter(
        "tidegate_window_fires_total",
        "Panes written: on time, or late by a record within the allowed lateness.",
    );
    for timing in [Timing::OnTime, Timing::Late] {
        let panes = records.panes.get(timing.name()).copied().unwrap_or(0);
        fires.push(&[("kind", timing.name())], count(panes));
    }
    let single = |name, help, value| Family::counter(name, help).with(&[], count(value));
    vec![
        fires,
        single(
            "tidegate_panes_undeliverable_total",
            "Panes larger than their topic takes; each is in the dead-letter topic.",
            records.panes_undeliverable,
        ),
        single(
            "tidegate_windows_purged_total",
            "Windows freed after their allowed lateness.",
            records.windows_freed,
        ),
        single(
            "tidegate_timestamps_replaced_total",
            "Output records that carry the current time, since their topic would have deleted or refused their own.",
            records.timestamps_replaced,
        ),
        single(
            "tidegate_watermark_regressions_suppressed_total",
            "Times the least of the active partitions was below the subtask watermark, which stayed.",
            records.watermark_regressions,
        ),
    ]
}

fn of_client(totals: &Totals) -> Vec<Family> {
    let mut transactions = Family::counter(
        "tidegate_transactions_total",
        "Commits of results and offsets by outcome: Kafka transactions, or what stands for them at least once.",
    );
    for outcome in CommitOutcome::ALL {
        let commits = totals.commits.get(&outcome).copied().unwrap_or(0);
        transactions.push(&[("outcome", outcome.name())], count(commits));
    }
    let mut rebalances =
        Family::counter("tidegate_rebalances_total", "Times the group gave or took partitions.");
    for event in RebalanceEvent::ALL {
        let times = totals.rebalances.get(&event).copied().unwrap_or(0);
        rebalances.push(&[("event", event.name())], count(times));
    }
    let mut errors = Family::counter(
        "tidegate_kafka_errors_total",
        "Errors that the Kafka client reported, by its own name for them.",
    );
    for ((code, fatal), times) in &totals.kafka_errors {
        let fatal = if *fatal { "true" } else { "false" };
        errors.push(&[("code", code), ("fatal", fatal)], count(*times));
    }
    vec![transactions, rebalances, errors]
}

fn of_process(totals: &Totals) -> Vec<Family> {
    let mut lines = Family::counter(
        "tidegate_log_events_total",
        "Lines that were written to the log, by level.",
    );
    for (level, written) in crate::log::lines() {
        lines.push(&[("level", level)], count(written));
    }
    let mut suppressed = Family::counter(
        "tidegate_log_events_suppressed_total",
        "Lines that were not written to the log since they repeat, by level.",
    );
    for (level, left_out) in crate::log::suppressed() {
        suppressed.push(&[("level", level)], count(left_out));
    }
    let mut calls = Family::counter(
        "tidegate_admin_requests_total",
        "Calls of the admin listener, by what they are about and how they ended.",
    );
    for call in AdminCall::ALL {
        for outcome in AdminOutcome::ALL {
            let times = totals.admin_requests.get(&(call, outcome)).copied().unwrap_or(0);
            calls.push(&[("call", call.name()), ("outcome", outcome.name())], count(times));
        }
    }
    vec![lines, suppressed, calls]
}

/// The most error codes that are told apart; librdkafka has more, but not in one place.
const KAFKA_ERROR_CODES: usize = 64;
