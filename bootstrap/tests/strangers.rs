//! Those who come to a process's port and do not belong there: real sockets, while a job joins and works.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use hetccl_bootstrap::{Bootstrap, Config, UniqueId, VERSION};
use siphasher::sip128::{Hasher128, SipHasher24};

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The tests share a port: the one that fills it runs alone.
static PORT: RwLock<()> = RwLock::new(());

fn config() -> Config {
    let notice = Arc::new(|line: &str| {
        println!("told: {line}");
        TOLD.lock().unwrap().push(line.to_owned());
    });
    Config { timeout: Duration::from_secs(60), notice, ..Config::default() }
}

/// Waits until a line with these words has been told.
fn is_told(words: &str) {
    let start = Instant::now();
    while !TOLD.lock().unwrap().iter().any(|line| line.contains(words)) {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody says {words:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A job that joins, works and ends right.
fn job(id: &UniqueId) {
    let config = &config();
    std::thread::scope(|scope| {
        for rank in 0..6 {
            scope.spawn(move || {
                let group = Bootstrap::join(std::slice::from_ref(id), rank, 6, config).unwrap();
                let all = group.allgather(&[rank as u8]).unwrap();
                assert_eq!(all, (0..6).map(|rank| vec![rank]).collect::<Vec<_>>());
                group.barrier().unwrap();
                assert_eq!(group.failure(), None);
            });
        }
    });
}

/// The port and secret of an id, as its bytes have them.
fn port_and_secret(id: &UniqueId) -> (u16, [u8; 16]) {
    let bytes = id.to_bytes();
    (u16::from_be_bytes([bytes[12], bytes[13]]), std::array::from_fn(|i| bytes[14 + i]))
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn keyed(secret: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(secret);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish128().as_bytes()
}

fn hello(version: u16, release: [u16; 3], name: [u8; 16], nonce: [u8; 16]) -> Vec<u8> {
    let mut bytes = b"HETCCLbs".to_vec();
    bytes.extend(version.to_be_bytes());
    bytes.extend(release.iter().flat_map(|number| number.to_be_bytes()));
    bytes.extend(name);
    bytes.extend(nonce);
    bytes
}

fn release() -> [u16; 3] {
    let mut numbers = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse().unwrap());
    std::array::from_fn(|_| numbers.next().unwrap())
}

/// A right hello, and the proof for the port's nonce in its answer.
fn prove(stream: &mut TcpStream, secret: &[u8; 16], nonce: [u8; 16]) -> [u8; 16] {
    stream.write_all(&hello(VERSION, release(), keyed(secret, &[b"name"]), nonce)).unwrap();
    let mut answer = [0; 49];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[10], 0, "welcome");
    let ports: [u8; 16] = std::array::from_fn(|i| answer[17 + i]);
    keyed(secret, &[b"connects", &nonce, &ports])
}

/// What the port says before it hangs up.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    // Whoever hangs up with bytes unread resets the connection.
    let _reset = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn garbage_is_dropped_without_an_answer() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, _) = port_and_secret(&id);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 100_000], b"HETCCLid", b"\x16\x03\x01"] {
        let mut stream = connect(port);
        let _hung_up = stream.write_all(bytes);
        assert_eq!(rest(stream), b"");
    }
    is_told("refused a connection from 127.0.0.1:");
    is_told("it does not speak hetccl's protocol");
    job(&id);
}

#[test]
fn a_port_scan_does_no_harm() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, _) = port_and_secret(&id);
    for _ in 0..300 {
        drop(connect(port));
    }
    is_told("it hung up before it had said who it is");
    job(&id);
}

#[test]
fn who_speaks_slowly_is_dropped_in_time() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, secret) = port_and_secret(&id);
    let mut stream = connect(port);
    let bytes = hello(VERSION, release(), keyed(&secret, &[b"name"]), [1; 16]);
    let start = Instant::now();
    let mut dropped = false;
    job(&id);
    for byte in bytes {
        dropped = stream.write_all(&[byte]).is_err();
        if dropped {
            break;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(dropped, "a hello of 12 s is not taken");
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    is_told("it did not say its words in 5 s");
}

#[test]
fn what_was_heard_on_the_wire_opens_nothing() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, secret) = port_and_secret(&id);
    // The request that asks who is missing: its length, and the number of its kind.
    let request = [0, 0, 0, 1, 2];
    let mut right = connect(port);
    let proof = prove(&mut right, &secret, [1; 16]);
    let mut again = connect(port);
    prove(&mut again, &secret, [1; 16]);
    again.write_all(&[&proof[..], &request].concat()).unwrap();
    assert_eq!(rest(again), b"", "the same hello and the same proof as before");
    is_told("it knows the name of a secret, but not the secret itself");
    right.write_all(&[&proof[..], &request].concat()).unwrap();
    job(&id);
}

#[test]
fn other_secrets_versions_and_releases_are_told_so() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, secret) = port_and_secret(&id);
    let name = keyed(&secret, &[b"name"]);
    let [major, minor, patch] = release();
    let other = [major, minor, patch + 1];
    for (bytes, status, words) in [
        (hello(VERSION, release(), [7; 16], [1; 16]), 1, "it does not know a secret of this"),
        (hello(VERSION + 1, release(), name, [1; 16]), 3, "it has version 3 of the protocol"),
        (hello(VERSION, other, name, [1; 16]), 4, "it has hetccl 0.1.1, this process 0.1.0"),
    ] {
        let mut stream = connect(port);
        stream.write_all(&bytes).unwrap();
        assert_eq!(rest(stream)[10], status, "{words}");
        is_told(words);
    }
    job(&id);
}

/// A port that answers every hello with these bytes; what a rank says that joins there.
fn joined_at(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let id = UniqueId::create(&config()).unwrap();
    let mut bytes = id.to_bytes();
    bytes[12..14].copy_from_slice(&port.to_be_bytes());
    let id = UniqueId::from_bytes(&bytes).unwrap();
    let ports = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut hello = [0; 10];
            if stream.read_exact(&mut hello).is_err() {
                return;
            }
            let _gone = stream.write_all(&answer);
            let _reset = stream.read_to_end(&mut Vec::new());
        }
    });
    let config = Config { connect_timeout: Duration::from_secs(1), ..config() };
    let error = Bootstrap::join(&[id], 0, 2, &config).unwrap_err().to_string();
    drop(TcpStream::connect(("127.0.0.1", port)));
    ports.join().unwrap();
    error
}

#[test]
fn a_root_of_another_version_or_release_is_named_and_one_that_pretends_is_not_believed() {
    let _shared = PORT.read();
    let mut answer = [b"HETCCLbs".as_slice(), &[0; 41]].concat();
    answer[8..10].copy_from_slice(&99u16.to_be_bytes());
    let error = joined_at(answer.clone());
    assert!(error.contains("has version 99") && error.contains("install the same"), "{error}");
    answer[8..10].copy_from_slice(&VERSION.to_be_bytes());
    answer[10] = 4;
    answer[16] = 9;
    let error = joined_at(answer.clone());
    assert!(error.contains("has hetccl 0.0.9, this process has 0.1.0"), "{error}");
    answer[10] = 0;
    let error = joined_at(answer);
    assert!(error.contains("does not know this job's secret"), "{error}");
}

#[test]
fn a_length_that_is_too_large_is_refused() {
    let _shared = PORT.read();
    let id = UniqueId::create(&config()).unwrap();
    let (port, secret) = port_and_secret(&id);
    for length in [u32::MAX, (64 << 20) + 257] {
        let mut stream = connect(port);
        let proof = prove(&mut stream, &secret, [2; 16]);
        stream.write_all(&[&proof[..], &length.to_be_bytes()].concat()).unwrap();
        assert_eq!(rest(stream), b"");
        is_told(&format!("a frame of {length} bytes, more than the"));
    }
    job(&id);
}

#[test]
fn thousands_of_half_open_connections_leave_room_for_the_job() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let _alone = PORT.write();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(16_384), hard).unwrap();
    if hard < 5000 {
        println!("SKIPPED thousands of connections: at most {hard} files may be open here");
        return;
    }
    let id = UniqueId::create(&config()).unwrap();
    let (port, _) = port_and_secret(&id);
    let silent: Vec<TcpStream> = (0..3000).map(|_| connect(port)).collect();
    let start = Instant::now();
    job(&id);
    println!("{} silent connections: the job took {:?}", silent.len(), start.elapsed());
    is_told("512 others came after it while it said nothing");
}
