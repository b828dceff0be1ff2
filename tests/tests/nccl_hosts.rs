//! Ranks of the NCCL library on two hosts: which network they take.

use std::process::Stdio;
use std::time::Duration;

use hetccl_tests::hosts::{ADDRESSES, ADDRESSES_V6, Hosts};
use hetccl_tests::nccl;

const LIMIT: Duration = Duration::from_secs(120);

/// Runs the communicators' program with a rank on either host; what they said.
fn job(hosts: &Hosts, settings: &[(&str, &str)]) -> [String; 2] {
    let file = nccl::job_file();
    let start = |rank: usize| {
        let mut start = nccl::on_emulated("nccl_comms", "cuda", Some(LIMIT));
        start.args(["rank", &rank.to_string(), "2", &file, "1000"]);
        start.env("NCCL_DEBUG", "INFO").envs(settings.iter().copied());
        let mut start = hosts.on(rank, &start);
        start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip is there")
    };
    let ranks = [0, 1].map(start);
    let said = ranks.map(|child| {
        let output = child.wait_with_output().expect("the rank runs");
        let held = nccl::held(&format!("{settings:?}"), &output);
        assert!(held > 35, "{settings:?}: only {held} checks held");
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    nccl::remove_job(&file);
    said
}

/// The line that says how others reach a rank.
fn way(said: &str) -> &str {
    let line = said.lines().find(|line| line.contains("others reach it by"));
    let line = line.unwrap_or_else(|| panic!("no line says it: {said}"));
    println!("{line}");
    line
}

#[test]
fn ranks_take_the_network_that_hosts_share() {
    let Some(hosts) = Hosts::for_test("ranks of two hosts") else { return };
    let bridged = hosts.add_bridge("docker0", "172.17.0.1/16");
    bridged.and_then(|()| hosts.add_bridge("br-0f3a", "172.18.0.1/16")).unwrap();
    let said = job(&hosts, &[]);
    for (i, said) in said.iter().enumerate() {
        let way = way(said);
        let place = |words: &str| way.find(words).unwrap_or_else(|| panic!("{words}: {way}"));
        let shared = place(&format!("hcv{i} {}", ADDRESSES[i]));
        assert!(shared < place("docker0 172.17.0.1"), "{way}");
        assert!(place("br-0f3a 172.18.0.1") < place("lo 127.0.0.1"), "{way}");
        assert!(way.contains("(NCCL_SOCKET_IFNAME is not set)"), "{way}");
    }
    let said = job(&hosts, &[("NCCL_SOCKET_IFNAME", "hcv"), ("NCCL_SOCKET_FAMILY", "AF_INET")]);
    for (i, said) in said.iter().enumerate() {
        let only = format!("others reach it by hcv{i} {} (NCCL_SOCKET_IFNAME=hcv)", ADDRESSES[i]);
        assert!(way(said).ends_with(&only), "{said}");
    }
    let settings = [("NCCL_SOCKET_IFNAME", "^docker,br-,lo"), ("NCCL_SOCKET_FAMILY", "AF_INET6")];
    let said = job(&hosts, &settings);
    for (i, said) in said.iter().enumerate() {
        assert!(way(said).contains(&format!("reach it by hcv{i} {} (", ADDRESSES_V6[i])), "{said}");
    }
}
