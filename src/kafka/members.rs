//! Who is in a group, whichever protocol manages it.
//!
//! The list of groups that rdkafka offers comes of an older request, which finds nobody in a group of the newer protocol.
//! librdkafka's own call asks for both kinds.

#![expect(unsafe_code, reason = "rdkafka offers no way to ask for members of the newer protocol")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use rdkafka::bindings::{
    rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new, rd_kafka_AdminOptions_set_broker,
    rd_kafka_AdminOptions_set_request_timeout, rd_kafka_AdminOptions_t,
    rd_kafka_ConsumerGroupDescription_error, rd_kafka_ConsumerGroupDescription_member,
    rd_kafka_ConsumerGroupDescription_member_count, rd_kafka_ConsumerGroupDescription_t,
    rd_kafka_DescribeConsumerGroups, rd_kafka_DescribeConsumerGroups_result_groups,
    rd_kafka_MemberDescription_client_id, rd_kafka_MemberDescription_host, rd_kafka_admin_op_t,
    rd_kafka_error_code, rd_kafka_event_DescribeConsumerGroups_result, rd_kafka_event_destroy,
    rd_kafka_event_error, rd_kafka_event_t, rd_kafka_queue_destroy, rd_kafka_queue_new,
    rd_kafka_queue_poll, rd_kafka_queue_t,
};
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataBroker;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::client::{Clients, REQUEST_TIMEOUT};

/// A member as the group knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    client_id: String,
    host: String,
}

impl Member {
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
        let mut refusal = RDKafkaErrorCode::CoordinatorNotAvailable;
        for broker in brokers {
            match members(client, &self.group_id, broker) {
                Ok(members) => {
                    self.coordinator.store(broker, Ordering::Relaxed);
                    return Ok(members);
                }
                Err(RDKafkaErrorCode::UnsupportedFeature) => return Ok(Vec::new()),
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

/// The members of a group, by a broker that manages it; a group that is not there has none.
fn members<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    broker: i32,
) -> Result<Vec<Member>, RDKafkaErrorCode> {
    const TIMEOUT_MS: c_int = 2_000;
    let group = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let client = client.native_ptr();
    // SAFETY: the client outlives this call, and what is made of it here is destroyed at its end.
    let (queue, options) = unsafe {
        let operation = rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
        (Queue(rd_kafka_queue_new(client)), Options(rd_kafka_AdminOptions_new(client, operation)))
    };
    let mut groups = [group.as_ptr()];
    // SAFETY: all pointers are live; librdkafka copies the names and the options. Where to say what is wrong with them is
    // left out, which it allows.
    let event = unsafe {
        rd_kafka_AdminOptions_set_request_timeout(options.0, TIMEOUT_MS, ptr::null_mut(), 0);
        rd_kafka_AdminOptions_set_broker(options.0, broker, ptr::null_mut(), 0);
        rd_kafka_DescribeConsumerGroups(client, groups.as_mut_ptr(), 1, options.0, queue.0);
        // librdkafka answers at the timeout by itself.
        Event(rd_kafka_queue_poll(queue.0, TIMEOUT_MS + 1_000))
    };
    if event.0.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    // SAFETY: the event is live until the end of this function.
    check(unsafe { rd_kafka_event_error(event.0) })?;
    let mut count = 0;
    // SAFETY: as above. The result is a view of the event, or null where it is another kind of event, which nothing
    // else on this queue is; the list has `count` groups.
    let groups = unsafe {
        let result = rd_kafka_event_DescribeConsumerGroups_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let groups = rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        if groups.is_null() { &[] } else { std::slice::from_raw_parts(groups, count) }
    };
    let mut members = Vec::new();
    for group in groups {
        members_of(*group, &mut members)?;
    }
    Ok(members)
}

fn members_of(
    group: *const rd_kafka_ConsumerGroupDescription_t,
    members: &mut Vec<Member>,
) -> Result<(), RDKafkaErrorCode> {
    // SAFETY: the group belongs to an event that the caller holds, and so does all that is asked of it; an error that is
    // null is none, and a member is there for each number below the count.
    unsafe {
        let error = rd_kafka_ConsumerGroupDescription_error(group);
        if !error.is_null() {
            return match check(rd_kafka_error_code(error)) {
                Err(RDKafkaErrorCode::GroupIdNotFound) => Ok(()),
                outcome => outcome,
            };
        }
        for nth in 0..rd_kafka_ConsumerGroupDescription_member_count(group) {
            let member = rd_kafka_ConsumerGroupDescription_member(group, nth);
            members.push(Member {
                client_id: text(rd_kafka_MemberDescription_client_id(member)),
                host: text(rd_kafka_MemberDescription_host(member)),
            });
        }
    }
    Ok(())
}

/// # Safety
/// The pointer is null, or to a text that ends in a zero byte.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn check(code: RDKafkaRespErr) -> Result<(), RDKafkaErrorCode> {
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

struct Event(*mut rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours since `rd_kafka_queue_poll` returned it, and destroyed here only; null is allowed.
        unsafe { rd_kafka_event_destroy(self.0) }
    }
}
