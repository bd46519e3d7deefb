//! On the broker inside this process, and on one that asks for a token.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::Offset;

use super::*;
use crate::generator::{Generator, GeneratorSettings};
use crate::kafka::embedded::EmbeddedBroker;

const PARTITIONS: u32 = 3;

fn generator() -> Generator {
    Generator::new(GeneratorSettings {
        broken_share: 0.05,
        tombstone_share: 0.05,
        ..GeneratorSettings::new(1, PARTITIONS, 100, EventTime(1_800_000_000_000))
    })
}

fn settings(broker: &EmbeddedBroker) -> LoadSettings {
    LoadSettings {
        brokers: Brokers {
            bootstrap_servers: broker.bootstrap_servers().to_owned(),
            properties: [("reconnect.backoff.max.ms".to_owned(), "100".to_owned())].into(),
            oauth: None,
        },
        topic: "orders".to_owned(),
        pace: Pace::Unpaced,
        duration: None,
        count: Some(1_000),
    }
}

fn broker() -> EmbeddedBroker {
    EmbeddedBroker::start(&[("orders", 3)]).unwrap()
}

#[test]
fn what_is_generated_is_what_the_topic_has() {
    let broker = broker();
    let load = RunningLoad::start(settings(&broker), generator(), Clock::start()).unwrap();
    let report = load.join();
    assert_eq!((report.records, report.delivered, report.failed), (1_000, 1_000, 0));
    assert!(report.broken > 0 && report.tombstones > 0, "{report}");

    let mut generator = generator();
    let mut expected = vec![Vec::new(); 3];
    for _ in 0..1_000 {
        let record = generator.next_due(EventTime::MAX).unwrap();
        expected[usize::try_from(record.partition).unwrap()].push((
            record.key.map(String::into_bytes),
            record.payload,
            Some(record.due.0),
        ));
    }
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap_servers())
        .set("group.id", "reader")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..3 {
        assignment.add_partition_offset("orders", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let mut read = vec![Vec::new(); 3];
    for _ in 0..1_000 {
        let message = consumer.poll(Duration::from_secs(10)).unwrap().unwrap();
        read[usize::try_from(message.partition()).unwrap()].push((
            message.key().map(<[u8]>::to_vec),
            message.payload().map(<[u8]>::to_vec),
            message.timestamp().to_millis(),
        ));
    }
    assert_eq!(read, expected);
}

#[test]
fn records_wait_for_a_broker_that_is_away() {
    let broker = broker();
    broker.set_reachable(false).unwrap();
    let load = RunningLoad::start(settings(&broker), generator(), Clock::start()).unwrap();
    while !load.shared.brokers_away.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    assert_eq!(load.report().delivered, 0);
    broker.set_reachable(true).unwrap();
    assert_eq!(load.join().delivered, 1_000);
}

#[test]
fn records_that_no_broker_takes_are_counted_and_told() {
    let broker = broker();
    broker.set_reachable(false).unwrap();
    let mut settings = settings(&broker);
    settings.brokers.properties.insert("message.timeout.ms".to_owned(), "200".to_owned());
    let load = RunningLoad::start(settings, generator(), Clock::start()).unwrap();
    let report = load.join();
    assert_eq!((report.delivered, report.failed), (0, 1_000));
    assert!(report.to_string().contains("1000 FAILED (the last: "), "{report}");
}

#[test]
fn a_load_by_the_clock_ends_after_its_duration_and_when_asked_to() {
    let broker = broker();
    let bounded = LoadSettings {
        pace: Pace::AsDue,
        duration: Some(Duration::from_millis(300)),
        count: None,
        ..settings(&broker)
    };
    let endless = LoadSettings { duration: None, ..bounded.clone() };
    let clock = Clock::start();
    let load = RunningLoad::start(bounded, generator(), clock).unwrap();
    assert_eq!(load.join().delivered, 30);
    assert!(clock.monotonic().0 >= Duration::from_millis(300));

    let load = RunningLoad::start(endless, generator(), clock).unwrap();
    load.stop();
    let report = load.join();
    assert_eq!(report.records, report.delivered);
}

#[test]
fn a_property_that_librdkafka_does_not_know_is_an_error() {
    let broker = broker();
    let mut settings = settings(&broker);
    settings.brokers.properties.insert("acks.all".to_owned(), "yes".to_owned());
    let error = RunningLoad::start(settings, generator(), Clock::start()).unwrap_err();
    assert!(matches!(error, LoadError::Client(_)));
}

const TOKEN: &str = "the-token";

/// A token endpoint, for as long as the test process lives.
fn token_endpoint() -> OAuth {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            while !request.ends_with(b"grant_type=client_credentials&scope=write%20orders") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            let body = format!(r#"{{"access_token":"{TOKEN}","expires_in":60}}"#);
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    OAuth {
        scope: Some("write orders".to_owned()),
        extensions: vec![("logicalCluster".to_owned(), "north".to_owned())],
        ..crate::kafka::oauth::tests::settings(false, "127.0.0.1", port)
    }
}

/// A broker that takes what is shown to it, and knows of its topic: an old one, which says little. It lives as long as the
/// test process. Where it is, and what it is shown.
fn broker_that_asks() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (shown, seen) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let shown = shown.clone();
            thread::spawn(move || talk(stream, port, &shown));
        }
    });
    (port, seen)
}

/// Until the client hangs up.
fn talk(mut stream: TcpStream, port: u16, shown: &Sender<String>) -> Option<()> {
    const METADATA: [u8; 2] = [0, 3];
    const SASL_HANDSHAKE: [u8; 2] = [0, 17];
    const API_VERSIONS: [u8; 2] = [0, 18];
    let text = |text: &str| [&[0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let versions = frame(&mut stream)?;
    assert!(versions.starts_with(&API_VERSIONS), "{versions:?}");
    let requests = [(METADATA, 1), (SASL_HANDSHAKE, 0), (API_VERSIONS, 3)];
    let requests: Vec<_> = requests
        .iter()
        .flat_map(|([high, low], greatest)| [*high, *low, 0, 0, 0, *greatest, 0])
        .collect();
    send(&mut stream, &[&versions[4..8], &[0, 0, 4], &requests, &[0; 5]].concat())?;
    let handshake = frame(&mut stream)?;
    assert!(handshake.starts_with(&SASL_HANDSHAKE), "{handshake:?}");
    let answer = [&[0, 0, 0, 0, 0, 1][..], &text("OAUTHBEARER")].concat();
    send(&mut stream, &[&handshake[4..8], &answer].concat())?;
    shown.send(String::from_utf8(frame(&mut stream)?).unwrap()).ok()?;
    send(&mut stream, &[])?;
    loop {
        let request = frame(&mut stream)?;
        // A record that is sent is kept waiting.
        if !request.starts_with(&METADATA) {
            continue;
        }
        assert_eq!(request[2..4], [0, 1], "another version");
        let broker =
            [&[0, 0, 0, 1, 0, 0, 0, 1][..], &text("127.0.0.1"), &[0, 0], &port.to_be_bytes()];
        let (no_rack, controller, topics) = ([0xff, 0xff], [0, 0, 0, 1], [0, 0, 0, 1, 0, 0]);
        let partition =
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        let topic = [&text("orders")[..], &[0, 0, 0, 0, 1], &partition].concat();
        let brokers = broker.concat();
        send(
            &mut stream,
            &[&request[4..8], &brokers, &no_rack, &controller, &topics, &topic].concat(),
        )?;
    }
}

fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> Option<()> {
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, frame].concat()).ok()
}

#[test]
fn brokers_that_ask_for_a_token_are_shown_one() {
    let (port, seen) = broker_that_asks();
    let properties = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("enable.idempotence", "false"),
        ("message.timeout.ms", "1000"),
    ];
    let brokers = Brokers {
        bootstrap_servers: format!("127.0.0.1:{port}"),
        properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        oauth: Some(token_endpoint()),
    };
    // RFC 7628: after the token, what else it has to say.
    let wanted = format!("auth=Bearer {TOKEN}\u{1}logicalCluster=north\u{1}");
    let with_the_token = |shown: &str| shown.contains(&wanted);
    let clock = Clock::start();
    assert_eq!(partitions(&brokers, "orders", clock).unwrap(), 1);
    let shown: Vec<_> = seen.try_iter().collect();
    assert!(!shown.is_empty() && shown.iter().all(|shown| with_the_token(shown)), "{shown:?}");

    let settings = LoadSettings {
        brokers,
        topic: "orders".to_owned(),
        pace: Pace::Unpaced,
        duration: None,
        count: Some(1),
    };
    let load = RunningLoad::start(settings, generator(), clock).unwrap();
    assert!(with_the_token(&seen.recv_timeout(Duration::from_secs(10)).unwrap()));
    load.join();
}

#[test]
fn without_a_token_nobody_is_asked() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = nobody.local_addr().unwrap();
    drop(nobody);
    let mut oauth = token_endpoint();
    oauth.token_endpoint.port = at.port();
    let properties = [("security.protocol".to_owned(), "SASL_PLAINTEXT".to_owned())];
    let mut brokers = Brokers {
        bootstrap_servers: at.to_string(),
        properties: properties.into(),
        oauth: Some(oauth),
    };
    let error = partitions(&brokers, "orders", Clock::start()).unwrap_err();
    let said = format!("no token from http://{at}/token (kafka.oauth): cannot be reached: ");
    assert!(error.to_string().starts_with(&said), "{error}");

    brokers.oauth = None;
    for name in MECHANISM {
        let mut brokers = brokers.clone();
        brokers.properties.insert(name.to_owned(), TOKENS.to_owned());
        let error = partitions(&brokers, "orders", Clock::start()).unwrap_err();
        let said =
            format!("{name}=OAUTHBEARER needs to know where tokens come from; give --config");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
}
