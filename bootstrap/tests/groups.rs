//! Groups of many ranks in one process.

use std::time::{Duration, Instant};

use hetccl_bootstrap::{Bootstrap, Config, Error, Result, UniqueId};

fn quick() -> Config {
    Config { timeout: Duration::from_secs(60), ..Config::default() }
}

/// Runs every rank in a thread.
fn each<T: Send>(
    ids: &[UniqueId],
    size: u32,
    config: &Config,
    work: impl Fn(Result<Bootstrap>) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let run = move || work(Bootstrap::join(ids, rank, size, config));
                std::thread::Builder::new().stack_size(512 << 10).spawn_scoped(scope, run).unwrap()
            })
            .collect();
        ranks.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn ids(count: usize) -> Vec<UniqueId> {
    (0..count).map(|_| UniqueId::create(&quick()).unwrap()).collect()
}

/// Joins, exchanges, and checks every result on every rank.
fn exercise(size: u32, roots: usize) -> Duration {
    let start = Instant::now();
    let joined = each(&ids(roots), size, &quick(), |group| {
        let group = group.unwrap();
        let joined = start.elapsed();
        let all = group
            .allgather(&group.rank().to_be_bytes().repeat(1 + group.rank() as usize % 3))
            .unwrap();
        assert_eq!(all.len(), size as usize);
        for (rank, bytes) in all.iter().enumerate() {
            assert_eq!(*bytes, (rank as u32).to_be_bytes().repeat(1 + rank % 3));
        }
        assert!(group.sockets() <= if roots == 1 { 9 } else { 18 }, "{}", group.sockets());
        group.barrier().unwrap();
        group.check().unwrap();
        // Nobody leaves while another still looks.
        group.barrier().unwrap();
        joined
    });
    joined.into_iter().max().unwrap()
}

#[test]
fn groups_of_every_small_size() {
    for size in 1..=20 {
        exercise(size, 1);
    }
}

#[test]
fn several_roots_share_the_ranks() {
    for (size, roots) in [(2, 2), (3, 2), (17, 3), (40, 12), (12, 12)] {
        exercise(size, roots);
    }
}

#[test]
fn hundreds_of_ranks_join_one_root() {
    let time = exercise(300, 1);
    println!("300 ranks in one process: joined in {:.2} s", time.as_secs_f64());
}

/// Opens 8,192 sockets in one process.
#[test]
fn thousands_of_ranks_join_one_root() {
    if std::env::var_os("HETCCL_LONG_TESTS").is_none() {
        println!(
            "SKIPPED 4,096 ranks: they take minutes, thousands of threads and `ulimit -n 20000`; HETCCL_LONG_TESTS=1 runs them"
        );
        return;
    }
    println!("4096 ranks, 1 root: joined in {:.2} s", exercise(4096, 1).as_secs_f64());
    println!("4096 ranks, 16 roots: joined in {:.2} s", exercise(4096, 16).as_secs_f64());
}

#[test]
fn messages_go_between_any_two_and_to_oneself() {
    each(&ids(1), 5, &quick(), |group| {
        let group = group.unwrap();
        let big = vec![group.rank() as u8; 3 << 20];
        for to in 0..5 {
            group.send(to, 1, &big).unwrap();
            group.send(to, 2, &[to as u8]).unwrap();
            group.send(to, 2, &[]).unwrap();
        }
        for from in (0..5).rev() {
            assert_eq!(group.recv(from, 2).unwrap(), [group.rank() as u8]);
            assert!(group.recv(from, 2).unwrap().is_empty());
            assert_eq!(group.recv(from, 1).unwrap(), vec![from as u8; 3 << 20]);
        }
        group.barrier().unwrap();
    });
}

#[test]
fn groups_split_off_and_number_anew() {
    each(&ids(1), 13, &quick(), |group| {
        let group = group.unwrap();
        let odd = group.rank() % 2;
        let members: Vec<u32> = (0..13).rev().filter(|rank| rank % 2 == odd).collect();
        let half = group.split(&members, 7).unwrap();
        assert_eq!(members[half.rank() as usize], group.rank());
        let all = half.allgather(&group.rank().to_be_bytes()).unwrap();
        let expected: Vec<Vec<u8>> =
            members.iter().map(|rank| rank.to_be_bytes().to_vec()).collect();
        assert_eq!(all, expected);
        // Messages of one group are not the other's.
        if half.rank() == 0 {
            half.send(1, 0, b"half").unwrap();
        }
        if half.rank() == 1 {
            assert_eq!(half.recv(0, 0).unwrap(), b"half");
        }
        half.barrier().unwrap();
        group.barrier().unwrap();
    });
}

#[test]
fn missing_ranks_are_named_on_every_rank() {
    let config = Config { timeout: Duration::from_secs(2), ..Config::default() };
    let id = ids(1);
    std::thread::scope(|scope| {
        for rank in [0, 1, 3, 6] {
            let (id, config) = (&id, &config);
            scope.spawn(move || {
                let error = Bootstrap::join(id, rank, 8, config).unwrap_err();
                let Error::Group(failure) = error else { panic!("{error}") };
                assert_eq!(failure.ranks, [2, 4, 5, 7], "{failure}");
                assert!(failure.reason.contains("ranks 2, 4-5, 7 of 8"), "{failure}");
            });
        }
    });
}

#[test]
fn ranks_of_a_root_where_nobody_comes_are_named() {
    let config = Config { timeout: Duration::from_secs(2), ..Config::default() };
    let ids = ids(2);
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let (ids, config) = (&ids, &config);
            scope.spawn(move || {
                let error = Bootstrap::join(ids, rank, 4, config).unwrap_err();
                assert!(error.to_string().contains("ranks 2-3 of 4"), "{error}");
            });
        }
    });
}

#[test]
fn a_rank_that_comes_twice_or_counts_otherwise_fails_all() {
    for (second, words) in [((0, 3), "rank 0 came twice"), ((1, 4), "says 4")] {
        let (id, config) = (ids(1), quick());
        std::thread::scope(|scope| {
            let (id, config) = (&id, &config);
            let first = scope.spawn(move || Bootstrap::join(id, 0, 3, config).unwrap_err());
            std::thread::sleep(Duration::from_millis(300));
            let error = Bootstrap::join(id, second.0, second.1, config).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            let error = first.join().unwrap();
            assert!(error.to_string().contains(words), "{error}");
            let error = Bootstrap::join(id, 2, 3, config).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        });
    }
}

#[test]
fn an_id_serves_one_group() {
    let ids = ids(1);
    each(&ids, 2, &quick(), |group| drop(group.unwrap()));
    let soon = Config { connect_timeout: Duration::from_secs(1), ..quick() };
    // The root learns of the end a moment later.
    std::thread::sleep(Duration::from_millis(200));
    let error = Bootstrap::join(&ids, 0, 2, &soon).unwrap_err();
    assert!(error.to_string().contains("has been used"), "{error}");
}

#[test]
fn an_abort_ends_a_join_and_a_wait_and_is_told() {
    let id = ids(1);
    let abort = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (id, abort) = (&id, &abort);
        let waiting =
            scope.spawn(move || Bootstrap::join_unless(id, 0, 2, &quick(), abort).unwrap_err());
        std::thread::sleep(Duration::from_millis(300));
        abort.store(true, std::sync::atomic::Ordering::Release);
        let start = Instant::now();
        assert_eq!(waiting.join().unwrap(), Error::Aborted);
        assert!(start.elapsed() < Duration::from_secs(1));
    });
    each(&ids(1), 3, &quick(), |group| {
        let group = group.unwrap();
        if group.rank() == 2 {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| group.recv(0, 5).unwrap_err());
                std::thread::sleep(Duration::from_millis(200));
                group.abort();
                assert_eq!(waiting.join().unwrap(), Error::Aborted);
            });
        } else {
            let error = group.barrier().unwrap_err();
            assert!(error.to_string().contains("rank 2 aborted"), "{error}");
        }
    });
}

#[test]
fn different_calls_do_not_meet() {
    let errors = each(&ids(1), 2, &quick(), |group| {
        let group = group.unwrap();
        match group.rank() {
            0 => group.barrier().unwrap_err(),
            _ => group.allgather(&[]).map(drop).unwrap_err(),
        }
    });
    for error in errors {
        assert!(error.to_string().contains("allgather number 1"), "{error}");
    }
}

#[test]
fn survivors_split_off_a_failed_group() {
    each(&ids(1), 4, &quick(), |group| {
        let group = group.unwrap();
        if group.rank() == 1 {
            // The others have joined by then.
            std::thread::sleep(Duration::from_millis(500));
            group.abort();
            return;
        }
        group.barrier().unwrap_err();
        let rest = group.split(&[0, 2, 3], 0).unwrap();
        assert_eq!(rest.allgather(&[1]).unwrap().len(), 3);
        rest.barrier().unwrap();
    });
}

#[test]
fn a_fixed_place_serves_one_group_after_the_other() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = Config { comm_id: Some(format!("127.0.0.1:{port}")), ..quick() };
    for _ in 0..3 {
        let id = UniqueId::create(&config).unwrap();
        each(&[id], 4, &config, |group| group.unwrap().barrier().unwrap());
    }
}

/// What a group says after a time in which nobody calls anything.
fn failure_of(group: &Bootstrap, at_most: Duration) -> Option<hetccl_bootstrap::Failure> {
    let start = Instant::now();
    while group.failure().is_none() && start.elapsed() < at_most {
        std::thread::sleep(Duration::from_millis(1));
    }
    group.failure()
}

#[test]
fn a_failure_is_told_to_ranks_that_call_nothing() {
    let size = 20;
    let times = each(&ids(1), size, &quick(), |group| {
        let group = group.unwrap();
        group.barrier().unwrap();
        if group.rank() == 7 {
            std::thread::sleep(Duration::from_millis(300));
            group.abort();
            return Duration::ZERO;
        }
        let start = Instant::now();
        let failure = failure_of(&group, Duration::from_secs(20)).expect("it hears of it");
        assert_eq!(failure.ranks, [7], "{failure}");
        start.elapsed()
    });
    println!("{size} ranks heard within {:?} of the barrier", times.iter().max().unwrap());
}

#[test]
fn silence_is_a_failure_only_where_nobody_is_there() {
    let config = Config { peer_timeout: Some(Duration::from_secs(1)), ..quick() };
    each(&ids(1), 3, &config, |group| {
        let group = group.unwrap();
        // A rank that does something else for longer than the limit is there all the same.
        assert_eq!(failure_of(&group, Duration::from_millis(2500)), None);
        group.barrier().unwrap();
        // Nor does leaving count as one.
        if group.rank() == 1 {
            group.leave();
        }
        assert_eq!(failure_of(&group, Duration::from_millis(300)), None);
    });
}

#[test]
fn connections_for_the_user_arrive_with_the_senders_rank() {
    use std::io::{Read, Write};
    each(&ids(1), 3, &quick(), |group| {
        let group = group.unwrap();
        let mut to: Vec<_> = (group.rank() + 1..3)
            .map(|peer| group.connect(peer, Duration::from_secs(5)).unwrap())
            .collect();
        let mut from = Vec::new();
        while from.len() < group.rank() as usize {
            from.extend(group.streams());
            std::thread::sleep(Duration::from_millis(1));
        }
        for stream in &mut to {
            stream.write_all(&[group.rank() as u8]).unwrap();
        }
        for (rank, stream) in &mut from {
            stream.set_nonblocking(false).unwrap();
            let mut byte = [9];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(u32::from(byte[0]), *rank);
        }
        group.barrier().unwrap();
    });
}
