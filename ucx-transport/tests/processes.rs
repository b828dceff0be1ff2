//! What needs processes: libraries that are missing, quiet start-up, peers that die or stop.
//!
//! The program runs itself again as a child, with a role in an environment variable; child and parent exchange lines
//! over the child's standard input and output.

mod common;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Buffer, PATIENCE, channel, fabric, pending, tag};
use hetccl_core::{Handle, Posted, Rank, Transport, TransportError};
use hetccl_ucx::{Channel, Fabric, Library, Port};

const ROLE: &str = "HETCCL_UCX_TEST_ROLE";
const TRANSPORTS: [&str; 2] = ["posix,cma,self", "tcp,self"];
const WINDOW_BYTES: usize = 4 << 20;

/// How soon a dead peer must be noticed: a few rounds of UCX's looks at silent peers, on a busy machine.
const NOTICE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(ROLE).as_deref() {
        Ok("load") => return load(),
        Ok("open") => return open(),
        Ok("peer") => return peer(),
        _ => {}
    }
    let filter =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let tests: &[(&str, fn())] = &[
        ("a_missing_library_is_an_error_that_says_where_it_was_looked_for", missing_library),
        ("starting_is_quiet_and_leaves_the_process_as_it_was", quiet),
        ("what_the_user_tells_ucx_is_respected", user_settings),
        ("messages_travel_between_processes", messages),
        ("a_receive_from_a_killed_peer_fails", receive_from_killed),
        ("a_send_to_a_killed_peer_fails", send_to_killed),
        ("a_flush_to_a_stopped_peer_ends_at_its_deadline", flush_to_stopped),
        ("closing_with_a_killed_or_stopped_peer_takes_bounded_time", close_with_lost_peer),
    ];
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn missing_library() {
    let folder = std::env::temp_dir().join(format!("hetccl-no-ucx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = output(role("load").env("HETCCL_UCX_LIB", &folder));
    std::fs::write(folder.join("libucp.so.0"), "not a library").unwrap();
    let broken = self::output(role("load").env("HETCCL_UCX_LIB", &folder));
    std::fs::remove_dir_all(&folder).unwrap();
    for (output, reason) in [(output, "No such file"), (broken, "too short")] {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        for part in [
            "UCX can't be loaded",
            &folder.join("libucp.so.0").to_string_lossy(),
            reason,
            "libucx0",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}

fn quiet() {
    for tls in ["all", "tcp,self"] {
        let output = output(role("open").env("UCX_TLS", tls).env("UCX_NO_SUCH_SETTING", "1"));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n");
    }
}

fn user_settings() {
    let output = output(role("open").env("UCX_LOG_LEVEL", "info"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("UCX") && text.contains("fine"), "{output:?}");
}

fn messages() {
    for tls in TRANSPORTS {
        let mut remote = Remote::new(tls);
        for (step, len) in [0, 8, 64, 1000, 8192, 65_536, 1 << 20, 9 << 20].into_iter().enumerate()
        {
            let (mut from, mut back) = (Buffer::pattern(len, step), Buffer::zero(len));
            remote.tell(&format!("echo {step} {len}"));
            let received = remote.recv(step as u16, &mut back).unwrap();
            let sent = remote.send(step as u16, &mut from).unwrap();
            remote.finish(sent, PATIENCE).unwrap();
            remote.finish(received, PATIENCE).unwrap();
            assert!(from.0 == back.0, "{len} bytes over {tls}");
        }
        remote.tell("close");
        let Remote { fabric, mut child, .. } = remote;
        fabric.close(Instant::now() + PATIENCE).unwrap();
        assert!(child.0.wait().unwrap().success());
    }
}

fn receive_from_killed() {
    for tls in TRANSPORTS {
        let mut remote = Remote::connected(tls);
        let mut into = Buffer::zero(100);
        let (early, late) = (remote.recv(1, &mut into).unwrap(), Buffer::zero(100));
        remote.child.signal(libc::SIGKILL);
        expect_failure(tls, remote.finish(early, NOTICE));
        let mut late = late;
        expect_failure(tls, remote.recv(2, &mut late).map(drop));
        expect_failure(tls, remote.send(2, &mut late).map(drop));
    }
}

fn send_to_killed() {
    for tls in TRANSPORTS {
        let mut remote = Remote::connected(tls);
        // Stopped first: a peer that still reads may take the whole message before it is killed.
        remote.child.signal(libc::SIGSTOP);
        let mut from = Buffer::pattern(32 << 20, 1);
        let sent = Posted::Pending(pending(remote.send(1, &mut from).unwrap()));
        remote.child.signal(libc::SIGKILL);
        expect_failure(tls, remote.finish(sent, NOTICE));
        let mut remote = Remote::connected(tls);
        remote.child.signal(libc::SIGKILL);
        let start = Instant::now();
        let mut small = Buffer::pattern(64, 1);
        let failed = loop {
            let sent = remote.send(2, &mut small).and_then(|posted| remote.finish(posted, NOTICE));
            if sent.is_err() || start.elapsed() > NOTICE {
                break sent;
            }
            remote.fabric.progress();
        };
        expect_failure(tls, failed);
    }
}

fn flush_to_stopped() {
    for tls in TRANSPORTS {
        let mut remote = Remote::connected(tls);
        let (address, packed) = remote.window();
        let key = remote.port().remote_key(Rank(1), &packed).unwrap();
        remote.child.signal(libc::SIGSTOP);
        let mut from = Buffer::pattern(WINDOW_BYTES, 1);
        // SAFETY: as long as the window.
        let put = unsafe { remote.port().put(Rank(1), from.region(), address, key) };
        let start = Instant::now();
        let flushed =
            remote.port().flush_until(Rank(1), start + Duration::from_millis(300)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(3), "{tls}: {:?}", start.elapsed());
        // Over shared memory the bytes are there already; TCP needs the peer's help.
        assert!(!flushed || tls.starts_with("posix"), "{tls}: {flushed}");
        remote.child.signal(libc::SIGCONT);
        remote.finish(put.unwrap(), PATIENCE).unwrap();
        assert_eq!(remote.port().flush_until(Rank(1), Instant::now() + PATIENCE), Ok(true));
        remote.child.signal(libc::SIGKILL);
        let deadline = Instant::now() + NOTICE;
        let gone = loop {
            remote.fabric.progress();
            let flushed =
                remote.port().flush_until(Rank(1), Instant::now() + Duration::from_millis(20));
            if flushed.is_err() || Instant::now() > deadline {
                break flushed;
            }
        };
        expect_failure(tls, gone.map(drop));
    }
}

fn close_with_lost_peer() {
    for tls in TRANSPORTS {
        for (signal, len) in [
            (libc::SIGKILL, 64),
            (libc::SIGSTOP, 64),
            (libc::SIGKILL, 2 << 20),
            (libc::SIGSTOP, 2 << 20),
        ] {
            let mut remote = Remote::connected(tls);
            remote.child.signal(signal);
            let mut from = Buffer::pattern(len, 1);
            // Enough to fill what lies between the processes.
            for step in 0..200 {
                if remote.send(step, &mut from).is_err() {
                    break;
                }
            }
            let Remote { fabric, child, .. } = remote;
            let start = Instant::now();
            let closed = fabric.close(start + Duration::from_millis(500));
            let took = start.elapsed();
            assert!(took < Duration::from_secs(4), "{tls}, signal {signal}: {took:?}, {closed:?}");
            drop(child);
        }
    }
}

fn expect_failure(tls: &str, result: Result<(), TransportError>) {
    match result {
        Err(TransportError::PeerFailed { peer: Rank(1), reason }) => {
            assert!(reason.contains("UCX") || reason.contains("has ended"), "{reason}")
        }
        other => panic!("over {tls} a killed peer gave {other:?}"),
    }
}

/// A child process that is rank 1, and this process's end as rank 0.
struct Remote {
    fabric: Fabric,
    channel: Channel,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    child: Killed,
}

/// A child that does not outlive its test.
struct Killed(Child);

impl Killed {
    fn signal(&mut self, signal: i32) {
        // SAFETY: the child has not been waited for, so the number is still its.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
        if signal == libc::SIGKILL {
            self.0.wait().unwrap();
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Remote {
    fn new(tls: &str) -> Remote {
        let fabric = fabric(tls);
        let mut child = role("peer")
            .env("UCX_TLS", tls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let address = exchange(fabric.address(), &mut from, &mut to);
        let channel = channel(0, vec![Vec::new(), address]);
        Remote { fabric, channel, to, from, child: Killed(child) }
    }

    /// One with which a small message has been exchanged.
    fn connected(tls: &str) -> Remote {
        let mut remote = Remote::new(tls);
        let (mut byte, mut back) = (Buffer::pattern(1, 0), Buffer::zero(1));
        remote.tell("echo 0 1");
        let sent = remote.send(0, &mut byte).unwrap();
        let received = remote.recv(0, &mut back).unwrap();
        remote.finish(sent, PATIENCE).unwrap();
        remote.finish(received, PATIENCE).unwrap();
        remote
    }

    fn port(&mut self) -> Port<'_> {
        Port { fabric: &mut self.fabric, channel: &mut self.channel }
    }

    fn send(&mut self, step: u16, from: &mut Buffer) -> Result<Posted, TransportError> {
        self.port().send(Rank(1), tag(step), from.region())
    }

    fn recv(&mut self, step: u16, into: &mut Buffer) -> Result<Posted, TransportError> {
        self.port().recv(Rank(1), tag(step), into.region())
    }

    fn finish(&mut self, posted: Posted, patience: Duration) -> Result<(), TransportError> {
        finish(&mut self.port(), posted, patience)
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// Address and packed key of the child's window.
    fn window(&mut self) -> (u64, Vec<u8>) {
        self.tell("window");
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let (address, key) = line.trim().split_once(' ').unwrap();
        (address.parse().unwrap(), bytes(key))
    }
}

fn finish(port: &mut Port<'_>, posted: Posted, patience: Duration) -> Result<(), TransportError> {
    let Posted::Pending(handle) = posted else { return Ok(()) };
    let end = Instant::now() + patience;
    while !poll(port, handle)? {
        assert!(Instant::now() < end, "{posted:?} does not end");
    }
    Ok(())
}

fn poll(port: &mut Port<'_>, handle: Handle) -> Result<bool, TransportError> {
    port.fabric.progress();
    port.test(handle)
}

fn role(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, name);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn exchange(address: &[u8], from: &mut dyn BufRead, to: &mut dyn Write) -> Vec<u8> {
    writeln!(to, "{}", digits(address)).unwrap();
    to.flush().unwrap();
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    bytes(line.trim())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

/// Prints why the library can't be loaded.
fn load() -> Result<(), Box<dyn Error>> {
    // SAFETY: the process has one thread.
    match unsafe { Library::load() } {
        Ok(library) => Err(format!("found {library:?}").into()),
        Err(error) => {
            println!("{error}");
            Ok(())
        }
    }
}

/// Starts and ends UCX, and checks what it left.
fn open() -> Result<(), Box<dyn Error>> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let handler = segv_handler();
    let one = fabric("all");
    let address = one.address().to_vec();
    let (mut one, mut channel) = (one, channel(0, vec![address]));
    let mut byte = Buffer::zero(1);
    Port { fabric: &mut one, channel: &mut channel }.send(Rank(0), tag(0), byte.region())?;
    one.close(Instant::now() + PATIENCE)?;
    assert_eq!(std::env::vars_os().collect::<Vec<_>>(), environment);
    assert_eq!(segv_handler(), handler);
    println!("fine");
    Ok(())
}

fn segv_handler() -> usize {
    // SAFETY: only asks; all-zero bytes are a valid sigaction, which the call overwrites.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

/// Rank 1: does what the lines on standard input say, and makes progress while there are none.
fn peer() -> Result<(), Box<dyn Error>> {
    let mut fabric = fabric("all");
    let mut to = std::io::stdout();
    let address = exchange(fabric.address(), &mut std::io::stdin().lock(), &mut to);
    let mut channel = channel(1, vec![address, Vec::new()]);
    let mut window = Buffer::zero(WINDOW_BYTES);
    let (lines_in, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = lines_in.send(line);
        }
        // The parent is gone.
        std::process::exit(1);
    });
    loop {
        fabric.progress();
        let Ok(line) = lines.try_recv() else { continue };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["echo", step, len] => {
                let (step, mut buffer) = (step.parse()?, Buffer::zero(len.parse()?));
                let mut port = Port { fabric: &mut fabric, channel: &mut channel };
                let received = port.recv(Rank(0), tag(step), buffer.region())?;
                finish(&mut port, received, PATIENCE)?;
                let sent = port.send(Rank(0), tag(step), buffer.region())?;
                finish(&mut port, sent, PATIENCE)?;
            }
            ["window"] => {
                let region = window.region();
                // SAFETY: the window lives as long as this function, which the fabric does not outlive.
                let memory = unsafe { fabric.register(region)? };
                writeln!(to, "{} {}", region.address.0, digits(&fabric.packed_key(memory)?))?;
            }
            ["close"] => {
                fabric.close(Instant::now() + PATIENCE)?;
                return Ok(());
            }
            _ => {
                return Err(
                    format!("{} does not know {line:?}", Path::new(file!()).display()).into()
                );
            }
        }
    }
}
