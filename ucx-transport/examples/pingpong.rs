//! Half the round trip of a message between two processes of this host, over UCX.
//!
//! `cargo run --release -p hetccl-ucx --example pingpong [iterations]`; settings of UCX come from the environment
//! (`UCX_TLS=tcp`) or, one by one without the prefix, from `HETCCL_PINGPONG_SETTINGS="RNDV_THRESH=64k TLS=posix,cma"`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hetccl_core::{
    Address, Group, Handle, MemoryType, MessageTag, Posted, Rank, Region, Transport, TransportError,
};
use hetccl_ucx::{Channel, Fabric, FabricParams, Library, Port};

const SIZES_BYTES: [usize; 8] = [0, 8, 64, 1024, 4096, 65536, 1 << 20, 4 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os("HETCCL_PINGPONG_CHILD").is_some() {
        let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
        return run(Rank(1), &mut stdin.lock(), &mut stdout.lock());
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args().skip(1))
        .env("HETCCL_PINGPONG_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to_child = child.stdin.take().ok_or("no pipe")?;
    let mut from_child = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    run(Rank(0), &mut from_child, &mut to_child)?;
    child.wait()?;
    Ok(())
}

fn run(rank: Rank, from: &mut dyn BufRead, to: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // SAFETY: the process has one thread.
    let library = unsafe { Library::load()? };
    let settings = std::env::var("HETCCL_PINGPONG_SETTINGS").unwrap_or_default();
    let settings = settings.split_whitespace().filter_map(|setting| setting.split_once('='));
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let params = FabricParams {
        estimated_endpoints: 2,
        processes_per_node: 2,
        settings,
        ..Default::default()
    };
    let mut fabric = Fabric::open(library, &params)?;
    let peer_address = exchange(fabric.address(), from, to)?;
    let group = Group { rank, size: 2, remote_size: None };
    let mut channel =
        Channel::new(1, group, Box::new(move |peer| Ok((peer.0.into(), peer_address.clone()))))?;
    if rank == Rank(0) {
        println!("UCX {:?}, address {} bytes", library.version(), fabric.address().len());
        println!("{:>10} {:>12} {:>10}", "bytes", "half rtt us", "MiB/s");
    }
    let iterations = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    for bytes in SIZES_BYTES {
        let iterations = iterations.min(iterations * 65_536 / bytes.max(1) / 4).max(20);
        let mut port = Port { fabric: &mut fabric, channel: &mut channel };
        pingpong(&mut port, rank, bytes, iterations / 10 + 10)?;
        let took = pingpong(&mut port, rank, bytes, iterations)?;
        if rank == Rank(0) {
            let half_us = took.as_secs_f64() * 1e6 / (2 * iterations) as f64;
            println!(
                "{bytes:>10} {half_us:>12.3} {:>10.0}",
                bytes as f64 / half_us * 1e6 / (1 << 20) as f64
            );
        }
    }
    fabric.close(Instant::now() + Duration::from_secs(5))?;
    Ok(())
}

fn pingpong(
    port: &mut Port<'_>,
    rank: Rank,
    bytes: usize,
    iterations: usize,
) -> Result<Duration, TransportError> {
    let (mut out, mut into) = (vec![1u8; bytes], vec![0u8; bytes]);
    let (out, into) = (region(&mut out), region(&mut into));
    let peer = Rank(1 - rank.0);
    let start = Instant::now();
    for iteration in 0..iterations {
        let tag = MessageTag { sequence: iteration as u16, step: 0 };
        if rank == Rank(0) {
            let sent = port.send(peer, tag, out)?;
            wait(port, sent)?;
        }
        let received = port.recv(peer, tag, into)?;
        wait(port, received)?;
        if rank == Rank(1) {
            let sent = port.send(peer, tag, out)?;
            wait(port, sent)?;
        }
    }
    Ok(start.elapsed())
}

fn wait(port: &mut Port<'_>, posted: Posted) -> Result<(), TransportError> {
    if let Posted::Pending(handle) = posted {
        while !test(port, handle)? {}
    }
    Ok(())
}

fn test(port: &mut Port<'_>, handle: Handle) -> Result<bool, TransportError> {
    port.fabric.progress();
    port.test(handle)
}

fn region(bytes: &mut [u8]) -> Region {
    Region {
        address: Address(bytes.as_mut_ptr() as usize),
        len_bytes: bytes.len(),
        memory: MemoryType::Host,
    }
}

/// Sends this process's address as a line of hexadecimal digits and reads the other's.
fn exchange(
    address: &[u8],
    from: &mut dyn BufRead,
    to: &mut dyn Write,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let line: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(to, "{line}")?;
    to.flush()?;
    let mut line = String::new();
    from.read_line(&mut line)?;
    let digits = line.trim();
    (0..digits.len() / 2).map(|i| Ok(u8::from_str_radix(&digits[2 * i..2 * i + 2], 16)?)).collect()
}
