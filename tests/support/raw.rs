//! A record written byte by byte, for what no client library would send.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Writes one record without a key to a partition, with one header whose name may be any bytes.
pub(crate) fn produce(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    payload: &[u8],
    (name, value): (&[u8], &[u8]),
) {
    let mut record = vec![0]; // attributes
    varint(&mut record, 0); // timestamp delta
    varint(&mut record, 0); // offset delta
    varint(&mut record, -1); // no key
    bytes(&mut record, payload);
    varint(&mut record, 1);
    bytes(&mut record, name);
    bytes(&mut record, value);
    let mut sized = Vec::new();
    bytes(&mut sized, &record);

    // What the checksum covers of a record batch, from its attributes on.
    let mut checked = Vec::new();
    checked.extend(0i16.to_be_bytes());
    checked.extend(0i32.to_be_bytes()); // last offset delta
    // Of the present, since the broker deletes what is old.
    let now = tidegate::clock::Clock::wall().0;
    checked.extend(now.to_be_bytes()); // first timestamp
    checked.extend(now.to_be_bytes()); // greatest timestamp
    checked.extend((-1i64).to_be_bytes()); // no producer id
    checked.extend((-1i16).to_be_bytes());
    checked.extend((-1i32).to_be_bytes());
    checked.extend(1i32.to_be_bytes());
    checked.extend(&sized);

    let mut batch = Vec::new();
    batch.extend(0i64.to_be_bytes()); // first offset
    batch.extend(i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
    batch.extend((-1i32).to_be_bytes()); // leader epoch
    batch.push(2); // magic
    batch.extend(crc32c(&checked).to_be_bytes());
    batch.extend(&checked);

    let mut request = Vec::new();
    request.extend(0i16.to_be_bytes()); // Produce
    request.extend(3i16.to_be_bytes()); // its version
    request.extend(7i32.to_be_bytes()); // correlation id
    text(&mut request, "raw");
    request.extend((-1i16).to_be_bytes()); // no transactional id
    request.extend((-1i16).to_be_bytes()); // all replicas
    request.extend(10_000i32.to_be_bytes()); // timeout
    request.extend(1i32.to_be_bytes());
    text(&mut request, topic);
    request.extend(1i32.to_be_bytes());
    request.extend(partition.to_be_bytes());
    request.extend(i32::try_from(batch.len()).unwrap().to_be_bytes());
    request.extend(&batch);

    let mut stream = TcpStream::connect(bootstrap).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&i32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
    stream.read_exact(&mut answer).unwrap();
    // Correlation id, one topic, its name, one partition, its number, and then the error code.
    let code = 4 + 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(answer.get(code..code + 2), Some(&[0, 0][..]), "{answer:?}");
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, i64::try_from(bytes.len()).unwrap());
    out.extend(bytes);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    out.extend(text.as_bytes());
}

/// Zigzag, then seven bits a byte.
fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7F) as u8);
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
