//! How the ranks of a new communicator find each other: the maker of the unique id collects what each of them says of
//! itself, and gives everything to all.
//!
//! Id: `HETCCLid`, version, port, 16 random bytes that keep strangers out, IPv4 addresses. One short connection a rank.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::abi::{Code, UniqueId};

const MAGIC: &[u8; 8] = b"HETCCLid";
const VERSION: u8 = 1;
/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(300);
const ATTEMPT: Duration = Duration::from_secs(3);
const MOST_CARD_BYTES: usize = 4096;

/// Addresses of this host: the one that leads to others, then the loopback one.
pub(crate) fn addresses() -> Vec<Ipv4Addr> {
    // Nothing is sent: the system only picks the interface.
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let mut all = Vec::new();
    if let Ok(SocketAddr::V4(address)) = outward {
        all.push(*address.ip());
    }
    if !all.contains(&Ipv4Addr::LOCALHOST) {
        all.push(Ipv4Addr::LOCALHOST);
    }
    all
}

/// A new id, and a thread that serves the ranks that come with it.
///
/// # Errors
/// No port, or no thread.
pub(crate) fn create() -> Result<UniqueId, Failure> {
    let listener = TcpListener::bind("0.0.0.0:0")
        .map_err(|error| Failure::system("listening for the ranks of a communicator", &error))?;
    let port = listener.local_addr().map_err(|error| Failure::system("a port", &error))?.port();
    let mut secret = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut secret))
        .map_err(|error| Failure::system("random numbers from /dev/urandom", &error))?;
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8] = VERSION;
    bytes[10..12].copy_from_slice(&port.to_be_bytes());
    bytes[12..28].copy_from_slice(&secret);
    let addresses = addresses();
    bytes[9] = addresses.len() as u8;
    for (place, address) in bytes[28..].chunks_exact_mut(4).zip(&addresses) {
        place.copy_from_slice(&address.octets());
    }
    std::thread::Builder::new()
        .name("hetccl-root".into())
        .spawn(move || serve(&listener, secret))
        .map_err(|error| Failure::system("starting a thread", &error))?;
    Ok(UniqueId { bytes })
}

/// The secret of an id.
pub(crate) fn secret(id: &UniqueId) -> [u8; 16] {
    std::array::from_fn(|i| id.bytes[12 + i])
}

/// Gives `card` to all ranks and returns everybody's, in the order of ranks.
///
/// # Errors
/// An id that is not hetccl's, no way to its maker, or ranks that do not come.
pub(crate) fn meet(
    id: &UniqueId,
    rank: usize,
    size: usize,
    card: &[u8],
) -> Result<Vec<Vec<u8>>, Failure> {
    if &id.bytes[..8] != MAGIC || id.bytes[8] != VERSION {
        return Err(Failure::argument(
            "the unique id is not one of this library's version: every rank must load the same hetccl",
        ));
    }
    let port = u16::from_be_bytes([id.bytes[10], id.bytes[11]]);
    let addresses: Vec<Ipv4Addr> = id.bytes[28..]
        .chunks_exact(4)
        .take(usize::from(id.bytes[9]))
        .map(|octets| Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
        .collect();
    let mut trouble = String::new();
    for address in addresses {
        let place = SocketAddr::from((address, port));
        let attempt = TcpStream::connect_timeout(&place, ATTEMPT)
            .and_then(|stream| ask(stream, id, rank, size, card));
        match attempt {
            Ok(cards) => return Ok(cards),
            Err(error) => trouble = format!("{trouble}; {place}: {error}"),
        }
    }
    Err(Failure::new(
        Code::SystemError,
        format!(
            "rank {rank} of {size} could not meet the others through the process that made the unique id{trouble}. \
             Is that process alive, and are its ports open?"
        ),
    ))
}

fn ask(
    mut stream: TcpStream,
    id: &UniqueId,
    rank: usize,
    size: usize,
    card: &[u8],
) -> std::io::Result<Vec<Vec<u8>>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut hello = secret(id).to_vec();
    for word in [rank, size, card.len()] {
        hello.extend_from_slice(&(word as u32).to_le_bytes());
    }
    hello.extend_from_slice(card);
    stream.write_all(&hello)?;
    (0..size).map(|_| read_card(&mut stream)).collect()
}

fn read_word(stream: &mut TcpStream) -> std::io::Result<usize> {
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word) as usize)
}

fn read_card(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let len = read_word(stream)?;
    if len > MOST_CARD_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut card = vec![0; len];
    stream.read_exact(&mut card)?;
    Ok(card)
}

/// Collects the cards, answers when all are there, and ends.
fn serve(listener: &TcpListener, secret: [u8; 16]) {
    let mut ranks: Vec<Option<(TcpStream, Vec<u8>)>> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while ranks.is_empty() || ranks.iter().any(Option::is_none) {
        if listener.set_nonblocking(true).is_err() || Instant::now() > deadline {
            return;
        }
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Ok((rank, size, arrived)) = greet(stream, secret) else { continue };
        if ranks.is_empty() && size <= 1 << 20 {
            ranks.resize_with(size, || None);
        }
        if let Some(place) = ranks.get_mut(rank) {
            *place = Some(arrived);
        }
    }
    let mut answer = Vec::new();
    for (_, card) in ranks.iter().flatten() {
        answer.extend_from_slice(&(card.len() as u32).to_le_bytes());
        answer.extend_from_slice(card);
    }
    for (stream, _) in ranks.iter_mut().flatten() {
        // A rank that has gone notices by itself.
        let _ = stream.write_all(&answer);
    }
}

type Arrived = (TcpStream, Vec<u8>);

fn greet(mut stream: TcpStream, secret: [u8; 16]) -> std::io::Result<(usize, usize, Arrived)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ATTEMPT))?;
    let mut theirs = [0; 16];
    stream.read_exact(&mut theirs)?;
    if theirs != secret {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let (rank, size) = (read_word(&mut stream)?, read_word(&mut stream)?);
    let card = read_card(&mut stream)?;
    Ok((rank, size, (stream, card)))
}
