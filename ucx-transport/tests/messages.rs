//! Messages and remote memory between two fabrics of one process, over shared memory and over TCP.

mod common;

use std::time::{Duration, Instant};

use common::{Buffer, PATIENCE, Pair, channel, fabric, pending, tag};
use hetccl_core::{Address, Group, MemoryType, Posted, Rank, Transport, TransportError};
use hetccl_ucx::{Channel, Fabric, FabricParams, Port};

const TRANSPORTS: [&str; 2] = ["posix,cma,self", "tcp,self"];

/// Below, at and above the limits between UCX's protocols: inline, eager, several fragments, rendezvous.
const SIZES_BYTES: [usize; 14] =
    [0, 1, 8, 64, 99, 100, 101, 1000, 8191, 8257, 65_536, 100_003, 1 << 20, (5 << 20) + 3];

#[test]
fn every_size_arrives_expected_and_unexpected() {
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        for (step, &len) in SIZES_BYTES.iter().enumerate() {
            for (rank, send_first) in [(0, false), (1, true), (1, false), (0, true)] {
                let (mut from, mut into) = (Buffer::pattern(len, step + rank), Buffer::zero(len));
                pair.transfer(rank, step as u16, from.region(), into.region(), send_first);
                assert!(
                    from.0 == into.0,
                    "{len} bytes from {rank} over {tls}, send first: {send_first}"
                );
            }
        }
    }
}

#[test]
fn a_message_that_is_there_is_received_at_once() {
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        let (mut from, mut into) = (Buffer::pattern(64, 1), Buffer::zero(64));
        let sent = pair.send(0, 0, from.region()).unwrap();
        pair.settle();
        assert_eq!(pair.recv(1, 0, into.region()), Ok(Posted::Done));
        assert_eq!(from.0, into.0);
        pair.finish(0, sent).unwrap();
        // Connected now: a small send ends at once as well.
        assert_eq!(pair.send(0, 1, from.region()), Ok(Posted::Done));
    }
}

#[test]
fn many_messages_match_by_tag_in_any_order() {
    const MESSAGES: usize = 1500;
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        let len = |i: usize| (i * 37) % 300 + if i.is_multiple_of(100) { 40_000 } else { 0 };
        let mut from: Vec<Buffer> = (0..MESSAGES).map(|i| Buffer::pattern(len(i), i)).collect();
        let mut into: Vec<Buffer> = (0..MESSAGES).map(|i| Buffer::zero(len(i))).collect();
        let mut posted = Vec::new();
        for i in (0..MESSAGES / 2).rev() {
            posted.push((1, pair.recv(1, i as u16, into[i].region()).unwrap()));
        }
        for i in 0..MESSAGES {
            let i = (i * 7) % MESSAGES;
            posted.push((0, pair.send(0, i as u16, from[i].region()).unwrap()));
        }
        pair.settle();
        for i in (MESSAGES / 2..MESSAGES).rev() {
            posted.push((1, pair.recv(1, i as u16, into[i].region()).unwrap()));
        }
        for (rank, posted) in posted {
            pair.finish(rank, posted).unwrap();
        }
        for i in 0..MESSAGES {
            assert!(from[i].0 == into[i].0, "message {i} over {tls}");
        }
    }
}

#[test]
fn messages_with_one_tag_keep_their_order() {
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        // Sizes alternate between eager and rendezvous.
        let len = |i: usize| if i % 3 == 1 { 200_000 } else { 16 };
        let mut from: Vec<Buffer> = (0..30).map(|i| Buffer::pattern(len(i), i)).collect();
        let mut into: Vec<Buffer> = (0..30).map(|i| Buffer::zero(len(i))).collect();
        let sent: Vec<Posted> =
            from.iter_mut().map(|buffer| pair.send(0, 9, buffer.region()).unwrap()).collect();
        let received: Vec<Posted> =
            into.iter_mut().map(|buffer| pair.recv(1, 9, buffer.region()).unwrap()).collect();
        sent.into_iter().for_each(|posted| pair.finish(0, posted).unwrap());
        received.into_iter().for_each(|posted| pair.finish(1, posted).unwrap());
        assert!(from.iter().zip(&into).all(|(from, into)| from.0 == into.0), "{tls}");
    }
}

#[test]
fn a_message_too_long_for_its_receive_is_truncated() {
    for tls in TRANSPORTS {
        for len in [2, 64, 5000, 20_000, 300_000, 2 << 20] {
            for send_first in [false, true] {
                let mut pair = Pair::new(tls);
                let (mut from, mut into) = (Buffer::pattern(len, 0), Buffer::zero(len));
                let mut room = into.region();
                room.len_bytes = len / 2;
                let result = if send_first {
                    let sent = pair.send(0, 0, from.region()).unwrap();
                    pair.settle();
                    let result = pair.recv(1, 0, room);
                    let result = result.and_then(|posted| pair.finish(1, posted));
                    pair.finish(0, sent).unwrap();
                    result
                } else {
                    let posted = pair.recv(1, 0, room).unwrap();
                    let sent = pair.send(0, 0, from.region()).unwrap();
                    let result = pair.finish(1, posted);
                    pair.finish(0, sent).unwrap();
                    result
                };
                let Err(TransportError::Truncated { peer: Rank(0), sent_bytes, room_bytes }) =
                    result
                else {
                    panic!("{len} bytes over {tls}, send first: {send_first}: {result:?}");
                };
                assert_eq!(room_bytes, len / 2);
                assert!([0, len].contains(&sent_bytes), "{sent_bytes} of {len}");
                assert!(
                    into.0[len / 2..].iter().all(|&byte| byte == 0),
                    "{len} bytes over {tls}: overrun"
                );
            }
        }
    }
}

#[test]
fn a_message_too_short_for_its_receive_is_an_error() {
    for send_first in [false, true] {
        let mut pair = Pair::new(TRANSPORTS[0]);
        let (mut from, mut into) = (Buffer::pattern(8, 0), Buffer::zero(16));
        let early = if send_first { None } else { Some(pair.recv(1, 0, into.region())) };
        let sent = pair.send(0, 0, from.region()).unwrap();
        pair.settle();
        let posted = early.unwrap_or_else(|| pair.recv(1, 0, into.region()));
        let error = posted.and_then(|posted| pair.finish(1, posted)).unwrap_err().to_string();
        assert!(
            error.contains("message from rank 0 has 8 bytes, the receive has room for 16"),
            "{error}"
        );
        pair.finish(0, sent).unwrap();
    }
}

#[test]
fn a_cancelled_receive_lets_go_of_its_memory() {
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        let (mut from, mut first, mut second) =
            (Buffer::pattern(500, 1), Buffer::zero(500), Buffer::zero(500));
        let handle = pending(pair.recv(1, 0, first.region()).unwrap());
        pair.port(1).cancel(handle);
        assert!(pair.port(1).test(handle).is_err(), "the handle is gone");
        pair.transfer(0, 0, from.region(), second.region(), false);
        assert_eq!(second.0, from.0);
        assert!(first.0.iter().all(|&byte| byte == 0));
    }
}

/// A send that waits for its receive: UCX 1.18 chooses by estimated times, and may send even 4 MiB at once.
#[test]
fn a_cancelled_send_lets_go_of_its_memory_in_bounded_time() {
    for tls in TRANSPORTS {
        let mut pair = Pair::with_settings(tls, &[("RNDV_THRESH", "64k")]);
        let mut from = Buffer::pattern(4 << 20, 1);
        let handle = pending(pair.send(0, 0, from.region()).unwrap());
        pair.settle();
        let start = Instant::now();
        pair.port(0).cancel(handle);
        assert!(start.elapsed() < Duration::from_secs(5), "{tls}: {:?}", start.elapsed());
        let error = pair.send(0, 1, from.region()).unwrap_err();
        assert!(
            matches!(error, TransportError::PeerFailed { peer: Rank(1), .. }),
            "{tls}: {error}"
        );
    }
}

#[test]
fn a_rank_can_send_to_itself() {
    let mut alone = fabric("all");
    let mut channel = channel(0, vec![alone.address().to_vec()]);
    let mut port = Port { fabric: &mut alone, channel: &mut channel };
    for len in [0, 64, 300_000] {
        let (mut from, mut into) = (Buffer::pattern(len, 4), Buffer::zero(len));
        let sent = port.send(Rank(0), tag(1), from.region()).unwrap();
        let received = port.recv(Rank(0), tag(1), into.region()).unwrap();
        let end = Instant::now() + PATIENCE;
        for posted in [sent, received] {
            if let Posted::Pending(handle) = posted {
                while !port.test(handle).unwrap() {
                    assert!(Instant::now() < end, "{len} bytes to oneself do not arrive");
                    port.fabric.progress();
                }
            }
        }
        assert!(from.0 == into.0, "{len} bytes");
    }
}

#[test]
fn communicators_share_endpoints_and_keep_their_messages_apart() {
    let mut pair = Pair::new(TRANSPORTS[0]);
    let addresses: Vec<Vec<u8>> =
        pair.fabrics.iter().map(|fabric| fabric.address().to_vec()).collect();
    let (mut from, mut into) = (Buffer::pattern(64, 1), Buffer::zero(64));
    let (mut other_from, mut other_into) = (Buffer::pattern(64, 2), Buffer::zero(64));
    let other = |rank: u32| {
        let addresses = addresses.clone();
        let group = Group { rank: Rank(rank), size: 2, remote_size: None };
        let resolve = move |peer: Rank| Ok((peer.0.into(), addresses[peer.index()].clone()));
        Channel::new(6, group, Box::new(resolve)).unwrap()
    };
    let mut others = [other(0), other(1)];
    let mut port = Port { fabric: &mut pair.fabrics[1], channel: &mut others[1] };
    let other_received = port.recv(Rank(0), tag(0), other_into.region()).unwrap();
    let received = pair.recv(1, 0, into.region()).unwrap();
    let sent = pair.send(0, 0, from.region()).unwrap();
    pair.finish(1, received).unwrap();
    let mut port = Port { fabric: &mut pair.fabrics[0], channel: &mut others[0] };
    let other_sent = port.send(Rank(1), tag(0), other_from.region()).unwrap();
    pair.finish(1, other_received).unwrap();
    pair.finish(0, sent).unwrap();
    pair.finish(0, other_sent).unwrap();
    assert_eq!((&from.0, &other_from.0), (&into.0, &other_into.0));
    assert_eq!(pair.fabrics.each_ref().map(Fabric::endpoints), [1, 1]);
}

#[test]
fn a_rank_outside_the_communicator_or_without_address_is_unreachable() {
    let mut lonely = fabric("all");
    let mut channel = channel(0, vec![lonely.address().to_vec(), Vec::new()]);
    let mut port = Port { fabric: &mut lonely, channel: &mut channel };
    let mut byte = Buffer::zero(1);
    for (peer, text) in [(Rank(2), "has 2 ranks"), (Rank(1), "no UCX address")] {
        let error = port.send(peer, tag(0), byte.region()).unwrap_err();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn peers_without_a_transport_in_common_are_unreachable() {
    let (mut here, there) = (fabric("posix,self"), fabric("tcp"));
    let mut channel = channel(0, vec![here.address().to_vec(), there.address().to_vec()]);
    let mut port = Port { fabric: &mut here, channel: &mut channel };
    let error = port.send(Rank(1), tag(0), Buffer::zero(1).region()).unwrap_err();
    assert!(matches!(error, TransportError::Unreachable { peer: Rank(1), .. }), "{error}");
    assert!(error.to_string().contains("UCX_TLS"), "{error}");
}

#[test]
fn remote_memory_is_written_and_read() {
    for tls in TRANSPORTS {
        for len in [1, 64, 10_000, 3 << 20] {
            let mut pair = Pair::new(tls);
            let (mut window, mut from, mut back) =
                (Buffer::zero(len + 16), Buffer::pattern(len, 7), Buffer::zero(len));
            let start = window.region().address.0 as u64;
            // SAFETY: the window outlives the pair's use of it; it is deregistered below.
            let memory = unsafe { pair.fabrics[1].register(window.region()) }.unwrap();
            let packed = pair.fabrics[1].packed_key(memory).unwrap();
            let key = pair.port(0).remote_key(Rank(1), &packed).unwrap();
            // SAFETY: inside the window.
            let put = unsafe { pair.port(0).put(Rank(1), from.region(), start + 8, key) }.unwrap();
            pair.finish(0, put).unwrap();
            let flush = pair.port(0).flush(Rank(1)).unwrap();
            pair.finish(0, flush).unwrap();
            assert!(window.0[8..len + 8] == from.0[..], "{len} bytes over {tls}");
            assert!(window.0[..8].iter().chain(&window.0[len + 8..]).all(|&byte| byte == 0));
            // SAFETY: inside the window.
            let get = unsafe { pair.port(0).get(Rank(1), back.region(), start + 8, key) }.unwrap();
            pair.finish(0, get).unwrap();
            assert!(back.0 == from.0, "{len} bytes over {tls}");
            pair.fabrics[0].release_key(key);
            // SAFETY: the key has been released, nothing is written.
            assert!(unsafe { pair.port(0).put(Rank(1), from.region(), start, key) }.is_err());
            pair.fabrics[1].deregister(memory);
            assert!(pair.fabrics[1].packed_key(memory).is_err());
        }
    }
}

#[test]
fn host_memory_is_reached_and_settings_are_checked() {
    let fabric = fabric("all");
    assert!(fabric.reaches(MemoryType::Host));
    assert!(!fabric.address().is_empty());
    let params = FabricParams {
        settings: vec![("RNDV_THRESH".into(), "green".into())],
        ..Default::default()
    };
    let error = Fabric::open(common::library(), &params).unwrap_err().to_string();
    assert!(error.contains("UCX_RNDV_THRESH=green"), "{error}");
    let params = FabricParams {
        settings: vec![("TLS".into(), "carrier_pigeon".into())],
        ..Default::default()
    };
    let error = Fabric::open(common::library(), &params).unwrap_err().to_string();
    assert!(error.contains("ucp_"), "{error}");
}

#[test]
fn both_sides_close_while_the_other_answers() {
    for tls in TRANSPORTS {
        let mut pair = Pair::new(tls);
        let (mut from, mut into) = (Buffer::pattern(70_000, 1), Buffer::zero(70_000));
        pair.transfer(0, 0, from.region(), into.region(), false);
        let Pair { fabrics: [left, right], channels } = pair;
        let deadline = Instant::now() + PATIENCE;
        let closing = std::thread::spawn(move || right.close(deadline));
        left.close(deadline).unwrap();
        closing.join().unwrap().unwrap();
        drop(channels);
    }
}

#[test]
fn a_zero_length_region_needs_no_memory() {
    let mut pair = Pair::new(TRANSPORTS[0]);
    let nothing =
        hetccl_core::Region { address: Address(0), len_bytes: 0, memory: MemoryType::Host };
    pair.transfer(0, 0, nothing, nothing, false);
    pair.transfer(1, 1, nothing, nothing, true);
}

#[test]
fn dropping_a_fabric_with_messages_under_way_neither_waits_nor_aborts() {
    for tls in TRANSPORTS {
        for len in [64, 100_000, 4 << 20] {
            for both in [false, true] {
                let mut pair = Pair::new(tls);
                let (mut from, mut into, mut other) =
                    (Buffer::pattern(len, 1), Buffer::zero(len), Buffer::zero(len));
                let mut posted = vec![pair.send(0, 0, from.region())];
                posted.push(pair.recv(0, 5, other.region()));
                if both {
                    posted.push(pair.recv(1, 0, into.region()));
                    // Far enough for the rendezvous to begin, not to end.
                    (0..20).for_each(|i| _ = pair.fabrics[i % 2].progress());
                }
                assert!(posted.iter().all(Result::is_ok), "{posted:?}");
                let start = Instant::now();
                drop(pair);
                assert!(start.elapsed() < Duration::from_secs(2), "{tls}: {:?}", start.elapsed());
            }
        }
    }
}

#[test]
fn closing_with_messages_under_way_takes_bounded_time() {
    for tls in TRANSPORTS {
        for len in [64, 100_000, 4 << 20] {
            let mut pair = Pair::new(tls);
            let (mut from, mut into) = (Buffer::pattern(len, 1), Buffer::zero(len));
            let sent = pair.send(0, 0, from.region()).unwrap();
            let received = pending(pair.recv(0, 5, into.region()).unwrap());
            pair.settle();
            assert_eq!(pair.port(0).test(received), Ok(false), "{sent:?}");
            let Pair { fabrics: [left, right], channels } = pair;
            let start = Instant::now();
            left.close(start + Duration::from_secs(2)).unwrap();
            right.close(start + Duration::from_secs(4)).unwrap();
            assert!(start.elapsed() < Duration::from_secs(4), "{tls}");
            drop(channels);
        }
    }
}
