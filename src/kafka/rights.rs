//! What one may do to topics and to the cluster, as the brokers tell it (KIP-430).
//!
//! rdkafka offers no way to ask for that. Nothing is created by asking: a topic that is not there stays so.

#![expect(unsafe_code, reason = "rdkafka offers no way to ask for one's rights")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_int};
use std::fmt;
use std::time::Duration;

use rdkafka::bindings::{
    rd_kafka_AclOperation_t, rd_kafka_DescribeCluster,
    rd_kafka_DescribeCluster_result_authorized_operations, rd_kafka_DescribeTopics,
    rd_kafka_DescribeTopics_result_topics, rd_kafka_TopicCollection_destroy,
    rd_kafka_TopicCollection_of_topic_names, rd_kafka_TopicCollection_t,
    rd_kafka_TopicDescription_authorized_operations, rd_kafka_TopicDescription_error,
    rd_kafka_TopicDescription_name, rd_kafka_admin_op_t, rd_kafka_error_code,
    rd_kafka_event_DescribeCluster_result, rd_kafka_event_DescribeTopics_result,
};
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaErrorCode;

use super::members::{ask, check, text};

/// What one may do to a topic, a group or the cluster.
pub(super) type Rights = BTreeSet<Operation>;

/// An operation, by Kafka's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
    ClusterAction,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// For each of these topics what one may do to it; `None` where the brokers do not tell. A topic that is not there, or
/// that one may not see, has an error of its own.
pub(super) fn of_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &BTreeSet<String>,
    timeout: Duration,
) -> Result<BTreeMap<String, Result<Option<Rights>, RDKafkaErrorCode>>, RDKafkaErrorCode> {
    let names: Vec<CString> =
        topics.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let client = client.native_ptr();
    let operation = rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    // SAFETY: librdkafka copies the names; the list of them lives until the end of this function.
    let asked = Topics(unsafe {
        rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), names.len())
    });
    // SAFETY: the client and the topics outlive the question.
    let event = unsafe {
        ask(client, operation, milliseconds(timeout), true, |options, queue| {
            rd_kafka_DescribeTopics(client, asked.0, options, queue);
        })
    }?;
    let mut found = BTreeMap::new();
    let mut count = 0;
    // SAFETY: the result is a view of the event, which is live until the end of this function, or null where it is of
    // another kind; the list has `count` topics, and what is asked of them belongs to it as well.
    unsafe {
        let result = rd_kafka_event_DescribeTopics_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let topics = rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        for nth in 0..if topics.is_null() { 0 } else { count } {
            let topic = *topics.add(nth);
            let error = rd_kafka_TopicDescription_error(topic);
            let fault = if error.is_null() { Ok(()) } else { check(rd_kafka_error_code(error)) };
            let mut count = 0;
            let operations = rd_kafka_TopicDescription_authorized_operations(topic, &raw mut count);
            let rights = fault.map(|()| rights(operations, count));
            found.insert(text(rd_kafka_TopicDescription_name(topic)), rights);
        }
    }
    Ok(found)
}

/// What one may do to the cluster as a whole; `None` where the brokers do not tell.
pub(super) fn of_cluster<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<Option<Rights>, RDKafkaErrorCode> {
    let client = client.native_ptr();
    let operation = rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER;
    // SAFETY: the client outlives the question.
    let event = unsafe {
        ask(client, operation, milliseconds(timeout), true, |options, queue| {
            rd_kafka_DescribeCluster(client, options, queue);
        })
    }?;
    let mut count = 0;
    // SAFETY: as above.
    unsafe {
        let result = rd_kafka_event_DescribeCluster_result(event.0);
        if result.is_null() {
            return Err(RDKafkaErrorCode::Unknown);
        }
        let operations =
            rd_kafka_DescribeCluster_result_authorized_operations(result, &raw mut count);
        Ok(rights(operations, count))
    }
}

/// # Safety
/// The pointer is null, or to `count` operations.
pub(super) unsafe fn rights(
    operations: *const rd_kafka_AclOperation_t,
    count: usize,
) -> Option<Rights> {
    if operations.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let operations = unsafe { std::slice::from_raw_parts(operations, count) };
    Some(operations.iter().filter_map(|operation| known(*operation)).collect())
}

fn known(operation: rd_kafka_AclOperation_t) -> Option<Operation> {
    use rd_kafka_AclOperation_t as Native;
    match operation {
        Native::RD_KAFKA_ACL_OPERATION_READ => Some(Operation::Read),
        Native::RD_KAFKA_ACL_OPERATION_WRITE => Some(Operation::Write),
        Native::RD_KAFKA_ACL_OPERATION_CREATE => Some(Operation::Create),
        Native::RD_KAFKA_ACL_OPERATION_DELETE => Some(Operation::Delete),
        Native::RD_KAFKA_ACL_OPERATION_ALTER => Some(Operation::Alter),
        Native::RD_KAFKA_ACL_OPERATION_DESCRIBE => Some(Operation::Describe),
        Native::RD_KAFKA_ACL_OPERATION_CLUSTER_ACTION => Some(Operation::ClusterAction),
        Native::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS => Some(Operation::DescribeConfigs),
        Native::RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS => Some(Operation::AlterConfigs),
        Native::RD_KAFKA_ACL_OPERATION_IDEMPOTENT_WRITE => Some(Operation::IdempotentWrite),
        Native::RD_KAFKA_ACL_OPERATION_UNKNOWN
        | Native::RD_KAFKA_ACL_OPERATION_ANY
        | Native::RD_KAFKA_ACL_OPERATION_ALL
        | Native::RD_KAFKA_ACL_OPERATION__CNT => None,
    }
}

fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX / 2)
}

struct Topics(*mut rd_kafka_TopicCollection_t);

impl Drop for Topics {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_TopicCollection_of_topic_names`, and destroyed here only.
        unsafe { rd_kafka_TopicCollection_destroy(self.0) }
    }
}
