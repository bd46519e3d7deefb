//! Who is in a group, whichever protocol manages it.
//!
//! The list of groups that rdkafka offers comes of an older request, which finds nobody in a group of the newer protocol.
//! librdkafka's own call asks for both kinds.
//!
//! What is made for that call here serves [`super::rights`] too.

#![expect(unsafe_code, reason = "rdkafka offers no way to ask for members of the newer protocol")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use rdkafka::bindings::{
    rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new, rd_kafka_AdminOptions_set_broker,
    rd_kafka_AdminOptions_set_include_authorized_operations,
    rd_kafka_AdminOptions_set_request_timeout, rd_kafka_AdminOptions_t,
    rd_kafka_ConsumerGroupDescription_authorized_operations,
    rd_kafka_ConsumerGroupDescription_error, rd_kafka_ConsumerGroupDescription_member,
    rd_kafka_ConsumerGroupDescription_member_count,
    rd_kafka_ConsumerGroupDescription_partition_assignor, rd_kafka_ConsumerGroupDescription_state,
    rd_kafka_ConsumerGroupDescription_t, rd_kafka_ConsumerGroupDescription_type,
    rd_kafka_DescribeConsumerGroups, rd_kafka_DescribeConsumerGroups_result_groups,
    rd_kafka_MemberDescription_client_id, rd_kafka_MemberDescription_host, rd_kafka_admin_op_t,
    rd_kafka_consumer_group_state_t, rd_kafka_consumer_group_type_t, rd_kafka_error_code,
    rd_kafka_error_destroy, rd_kafka_event_DescribeConsumerGroups_result, rd_kafka_event_destroy,
    rd_kafka_event_error, rd_kafka_event_t, rd_kafka_queue_destroy, rd_kafka_queue_new,
    rd_kafka_queue_poll, rd_kafka_queue_t, rd_kafka_t,
};
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataBroker;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::client::{Clients, REQUEST_TIMEOUT};
use super::rights::{Rights, rights};

/// A group as the broker that manages it knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Who is in it.
    pub(super) members: Vec<Member>,
    /// What it is at, in Kafka's words; empty for a group that is not there.
    pub(super) state: &'static str,
    /// By which strategy the members share the partitions, where they have agreed on one.
    pub(super) assignor: String,
    /// It is managed by the newer protocol (KIP-848).
    pub(super) newer: bool,
    /// What one may do to it; `None`: not asked for, or the brokers do not tell.
    pub(super) rights: Option<Rights>,
}

/// A member as the group knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    client_id: String,
    host: String,
}

impl Member {
    #[cfg(test)]
    pub(super) fn of(client_id: &str, host: &str) -> Self {
        Self { client_id: client_id.to_owned(), host: host.to_owned() }
    }

    /// What it is called, without what tells its process from others.
    fn name(&self) -> &str {
        self.client_id.rsplit_once('.').map_or(&self.client_id, |(name, _)| name)
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.name(), self.host)
    }
}

impl Clients {
    /// The members of the group; none where the brokers cannot tell.
    ///
    /// The brokers are asked one by one, and one that does not manage the group says so. librdkafka would look the right
    /// one up itself, but remembers it for minutes, whatever it is answered there, and may abort the process when that
    /// broker goes while the question is under way (librdkafka issue 4605).
    pub(super) fn members<C: ClientContext>(
        &self,
        client: &Client<C>,
    ) -> Result<Vec<Member>, KafkaError> {
        let metadata = client.fetch_metadata(Some(&self.known_topic), REQUEST_TIMEOUT)?;
        let mut brokers: Vec<_> = metadata.brokers().iter().map(MetadataBroker::id).collect();
        let last = self.coordinator.load(Ordering::Relaxed);
        brokers.sort_unstable_by_key(|broker| *broker != last);
        self.group(client, &brokers, false).map(|group| group.members)
    }

    /// The group, by that one of these brokers which manages it; with what one may do to it, if that is asked for.
    pub(super) fn group<C: ClientContext>(
        &self,
        client: &Client<C>,
        brokers: &[i32],
        with_rights: bool,
    ) -> Result<Group, KafkaError> {
        let mut refusal = RDKafkaErrorCode::CoordinatorNotAvailable;
        for broker in brokers.iter().copied() {
            match describe(client, &self.group_id, broker, with_rights) {
                Ok(group) => {
                    self.coordinator.store(broker, Ordering::Relaxed);
                    return Ok(group);
                }
                Err(RDKafkaErrorCode::UnsupportedFeature) => return Ok(Group::default()),
                Err(RDKafkaErrorCode::NotCoordinator) => {}
                Err(code) => refusal = code,
            }
        }
        Err(KafkaError::GroupListFetch(refusal))
    }

    /// The members of other names: one of ours is what was here before a restart.
    pub(super) fn others<C: ClientContext>(
        &self,
        client: &Client<C>,
    ) -> Result<Vec<Member>, KafkaError> {
        let mut members = self.members(client)?;
        members.retain(|member| member.name() != self.client_id);
        Ok(members)
    }

    /// Other processes of the same name.
    pub(super) fn rivals<C: ClientContext>(
        &self,
        client: &Client<C>,
    ) -> Result<Vec<Member>, KafkaError> {
        let mut members = self.members(client)?;
        members
            .retain(|member| member.name() == self.client_id && member.client_id != self.member_id);
        Ok(members)
    }
}

/// A group, by a broker that manages it; one that is not there has no members.
fn describe<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    broker: i32,
    with_rights: bool,
) -> Result<Group, RDKafkaErrorCode> {
    const TIMEOUT_MS: c_int = 2_000;
    let group = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let client = client.native_ptr();
    let mut groups = [group.as_ptr()];
    let operation = rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    // SAFETY: the client outlives the question, whose name and options librdkafka copies.
    let event = unsafe {
        ask(client, operation, TIMEOUT_MS, with_rights, |options, queue| {
            rd_kafka_AdminOptions_set_broker(options, broker, ptr::null_mut(), 0);
            rd_kafka_DescribeConsumerGroups(client, groups.as_mut_ptr(), 1, options, queue);
        })
    }?;
    let mut count = 0;
    // SAFETY: the event is live until the end of this function. The result is a view of it, or null where it is another
    // kind of event, which nothing else on this queue is; the list has `count` groups.
    let groups = unsafe {
        let result = rd_kafka_event_DescribeConsumerGroups_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let groups = rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        if groups.is_null() { &[] } else { std::slice::from_raw_parts(groups, count) }
    };
    groups.first().map_or(Ok(Group::default()), |group| read(*group))
}

fn read(group: *const rd_kafka_ConsumerGroupDescription_t) -> Result<Group, RDKafkaErrorCode> {
    // SAFETY: the group belongs to an event that the caller holds, and so does all that is asked of it; an error that is
    // null is none, and a member is there for each number below the count.
    unsafe {
        let error = rd_kafka_ConsumerGroupDescription_error(group);
        if !error.is_null() {
            return match check(rd_kafka_error_code(error)) {
                Err(RDKafkaErrorCode::GroupIdNotFound) => Ok(Group::default()),
                outcome => outcome.map(|()| Group::default()),
            };
        }
        let mut members = Vec::new();
        for nth in 0..rd_kafka_ConsumerGroupDescription_member_count(group) {
            let member = rd_kafka_ConsumerGroupDescription_member(group, nth);
            members.push(Member {
                client_id: text(rd_kafka_MemberDescription_client_id(member)),
                host: text(rd_kafka_MemberDescription_host(member)),
            });
        }
        let mut count = 0;
        let operations =
            rd_kafka_ConsumerGroupDescription_authorized_operations(group, &raw mut count);
        Ok(Group {
            members,
            state: state(rd_kafka_ConsumerGroupDescription_state(group)),
            assignor: text(rd_kafka_ConsumerGroupDescription_partition_assignor(group)),
            newer: rd_kafka_ConsumerGroupDescription_type(group)
                == rd_kafka_consumer_group_type_t::RD_KAFKA_CONSUMER_GROUP_TYPE_CONSUMER,
            rights: rights(operations, count),
        })
    }
}

/// Kafka's names, and none for a group that is not there.
fn state(state: rd_kafka_consumer_group_state_t) -> &'static str {
    use rd_kafka_consumer_group_state_t as State;
    match state {
        State::RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE => "PreparingRebalance",
        State::RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE => "CompletingRebalance",
        State::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE => "Stable",
        State::RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY => "Empty",
        State::RD_KAFKA_CONSUMER_GROUP_STATE_DEAD => "",
        State::RD_KAFKA_CONSUMER_GROUP_STATE_UNKNOWN
        | State::RD_KAFKA_CONSUMER_GROUP_STATE__CNT => "in a state that this client does not know",
    }
}

/// Asks the brokers and waits for the answer; `with_rights` asks also what one may do to what is described.
///
/// # Safety
/// The client is live, and so is all that `put` gives to librdkafka.
pub(super) unsafe fn ask(
    client: *mut rd_kafka_t,
    operation: rd_kafka_admin_op_t,
    timeout_ms: c_int,
    with_rights: bool,
    put: impl FnOnce(*mut rd_kafka_AdminOptions_t, *mut rd_kafka_queue_t),
) -> Result<Event, RDKafkaErrorCode> {
    // SAFETY: the client is live, and what is made of it here is destroyed at the end; librdkafka copies the options.
    // Where to say what is wrong with them is left out, which it allows; what it says then has to be destroyed.
    let event = unsafe {
        let queue = Queue(rd_kafka_queue_new(client));
        let options = Options(rd_kafka_AdminOptions_new(client, operation));
        rd_kafka_AdminOptions_set_request_timeout(options.0, timeout_ms, ptr::null_mut(), 0);
        if with_rights {
            let fault = rd_kafka_AdminOptions_set_include_authorized_operations(
                options.0,
                c_int::from(true),
            );
            if !fault.is_null() {
                rd_kafka_error_destroy(fault);
            }
        }
        put(options.0, queue.0);
        // librdkafka answers at the timeout by itself.
        Event(rd_kafka_queue_poll(queue.0, timeout_ms + 1_000))
    };
    if event.0.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    // SAFETY: the event is live.
    check(unsafe { rd_kafka_event_error(event.0) })?;
    Ok(event)
}

/// # Safety
/// The pointer is null, or to a text that ends in a zero byte.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn check(code: RDKafkaRespErr) -> Result<(), RDKafkaErrorCode> {
    if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(code.into()) }
}

struct Queue(*mut rd_kafka_queue_t);

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_queue_new`, and destroyed here only.
        unsafe { rd_kafka_queue_destroy(self.0) }
    }
}

struct Options(*mut rd_kafka_AdminOptions_t);

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_AdminOptions_new`, and destroyed here only.
        unsafe { rd_kafka_AdminOptions_destroy(self.0) }
    }
}

pub(super) struct Event(pub(super) *mut rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours since `rd_kafka_queue_poll` returned it, and destroyed here only; null is allowed.
        unsafe { rd_kafka_event_destroy(self.0) }
    }
}
