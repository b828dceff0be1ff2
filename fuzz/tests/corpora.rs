//! What is kept of each target's corpus, and some seeded mutations of it: HETCCL_FUZZ_MUTATIONS and HETCCL_FUZZ_SEED for others.

use std::path::Path;

use hetccl_fuzz::{Mutator, TARGETS};

const MUTATIONS: u64 = 5_000;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_target_takes_its_corpus_and_mutations_of_it() {
    let (mutations, seed) =
        (number("HETCCL_FUZZ_MUTATIONS", MUTATIONS), number("HETCCL_FUZZ_SEED", 1));
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let corpus: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!corpus.is_empty(), "{name} has no corpus");
        corpus.iter().for_each(|bytes| target(bytes));
        let mut mutator = Mutator::new(seed, corpus);
        for _ in 0..mutations {
            let bytes = mutator.input();
            let ended = std::panic::catch_unwind(|| target(&bytes));
            assert!(ended.is_ok(), "{name}: {:?}", bytes.escape_ascii().to_string());
        }
        println!("{name}: {} kept, {mutations} mutations", files.len());
    }
}
