//! Clients that hold connections and give others no place.

use super::*;

#[tokio::test]
async fn silent_clients_lose_their_connections_to_others() {
    let limits = Limits {
        connections: 1,
        header: Duration::from_millis(50),
        lifetime: Duration::from_mins(1),
        grace: Duration::from_secs(1),
        ..Limits::DEFAULT
    };
    let bench = bench_with(1, |server| server.limited(limits)).await;
    let mut silent = open(bench.address); // takes the only slot
    let mut slow = open(bench.address);
    slow.write_all(b"GET / HTTP/1.1\r\nhost: here").unwrap();
    assert_eq!(bench.get("/livez").await.code, 200);
    let rest = spawn_blocking(move || {
        let mut rest = Vec::new();
        silent.read_to_end(&mut rest).map(|_| rest)
    });
    assert_eq!(rest.await.unwrap().unwrap(), b"");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_all_places_loses_them_to_others_one_by_one() {
    // Nothing ends by itself while the test runs.
    let limits = Limits {
        connections: 4,
        header: Duration::from_mins(10),
        lifetime: Duration::from_mins(10),
        ..Limits::DEFAULT
    };
    let bench = bench_with(1, |server| server.limited(limits)).await;
    // A client of its own, which keeps its connection from one scrape to the next.
    let mut scrape = open(bench.address);
    let mut greedy: Vec<_> = (0..40).map(|_| from_elsewhere(bench.address)).collect();
    for stream in &mut greedy {
        // Those that were cut off say so at once or at the next write.
        stream.write_all(b"GET / HT").unwrap_or_default();
    }
    let scraped = spawn_blocking(move || {
        for _ in 0..3 {
            scrape.write_all(b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            let mut start = [0; 12];
            scrape.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200");
            let mut rest = [0; 1024];
            assert!(scrape.read(&mut rest).unwrap() > 0);
        }
    });
    scraped.await.unwrap();
    assert_eq!(bench.get("/metrics").await.code, 200);
}

/// A connection from another address of this machine.
fn from_elsewhere(address: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Handle::current();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let connecting = async move { socket.connect(address).await.unwrap() };
    let stream = tokio::task::block_in_place(|| runtime.block_on(connecting)).into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[tokio::test]
async fn a_connection_is_ended_after_its_lifetime() {
    let limits = Limits {
        connections: 1,
        header: Duration::from_mins(1),
        lifetime: Duration::from_millis(50),
        grace: Duration::from_millis(50),
        ..Limits::DEFAULT
    };
    let bench = bench_with(1, |server| server.limited(limits)).await;
    let idle = open(bench.address);
    assert_eq!(bench.get("/livez").await.code, 200);
    drop(idle);
}
