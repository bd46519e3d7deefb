//! Rights on a broker (ACLs), which rdkafka has no call for.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]
#![expect(unsafe_code, reason = "rdkafka has no call that creates ACLs")]

use std::ffi::CString;
use std::ptr;

use rdkafka::bindings::{
    rd_kafka_AclBinding_destroy_array, rd_kafka_AclBinding_new, rd_kafka_AclOperation_t,
    rd_kafka_AclPermissionType_t, rd_kafka_CreateAcls, rd_kafka_CreateAcls_result_acls,
    rd_kafka_ResourcePatternType_t, rd_kafka_ResourceType_t, rd_kafka_acl_result_error,
    rd_kafka_event_CreateAcls_result, rd_kafka_event_destroy, rd_kafka_event_error,
    rd_kafka_queue_destroy, rd_kafka_queue_new, rd_kafka_queue_poll,
};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaRespErr;

use super::rights::Right;

/// Gives rights to principals, each of which is written `User:name`.
pub(crate) fn grant(client: &BaseProducer, grants: &[(String, Right)]) {
    let client = client.client().native_ptr();
    let host = CString::new("*").unwrap();
    let mut bindings = Vec::new();
    for (principal, right) in grants {
        let principal = CString::new(principal.as_str()).unwrap();
        let name = CString::new(right.name.as_str()).unwrap();
        let pattern = if right.prefix {
            rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_PREFIXED
        } else {
            rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_LITERAL
        };
        // SAFETY: all texts live until the call returns, which copies them; there is no place for an error's text.
        let binding = unsafe {
            rd_kafka_AclBinding_new(
                resource(&right.resource),
                name.as_ptr(),
                pattern,
                principal.as_ptr(),
                host.as_ptr(),
                operation(&right.operation),
                rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                ptr::null_mut(),
                0,
            )
        };
        assert!(!binding.is_null(), "{right:?}");
        bindings.push(binding);
    }
    // SAFETY: the client lives longer than this; what is made here is used until it is destroyed at the end.
    unsafe {
        let queue = rd_kafka_queue_new(client);
        rd_kafka_CreateAcls(client, bindings.as_mut_ptr(), bindings.len(), ptr::null(), queue);
        let event = rd_kafka_queue_poll(queue, 30_000);
        assert!(!event.is_null(), "no answer about rights");
        assert_eq!(rd_kafka_event_error(event), RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
        let mut count = 0;
        let results = rd_kafka_CreateAcls_result_acls(
            rd_kafka_event_CreateAcls_result(event),
            &raw mut count,
        );
        for result in std::slice::from_raw_parts(results, count) {
            assert!(rd_kafka_acl_result_error(*result).is_null(), "a right was not given");
        }
        assert_eq!(count, grants.len());
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_AclBinding_destroy_array(bindings.as_mut_ptr(), bindings.len());
    }
}

fn resource(name: &str) -> rd_kafka_ResourceType_t {
    match name {
        "topic" => rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
        "group" => rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_GROUP,
        "transactional id" => rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TRANSACTIONAL_ID,
        other => panic!("no resource of Kafka: {other}"),
    }
}

fn operation(name: &str) -> rd_kafka_AclOperation_t {
    match name {
        "Read" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ,
        "Write" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE,
        "Create" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_CREATE,
        "Delete" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_DELETE,
        "Alter" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_ALTER,
        "Describe" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_DESCRIBE,
        "DescribeConfigs" => rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS,
        other => panic!("no operation of Kafka: {other}"),
    }
}
