//! Seeded mutations of a corpus, for short runs without coverage.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Longest input that is made.
const MOST_BYTES: usize = 1 << 14;
/// Changes to one input.
const MOST_CHANGES: usize = 6;

/// Words that readers look at closely: lengths, signs, ends.
const NUMBERS: [u64; 9] =
    [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX, 0x0100_0000_0000_0000];

/// Makes inputs out of others.
#[derive(Debug)]
pub struct Mutator {
    random: SmallRng,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// Mutations of `corpus`, all of which follow from the seed. An empty corpus counts as one empty input.
    pub fn new(seed: u64, mut corpus: Vec<Vec<u8>>) -> Mutator {
        if corpus.is_empty() {
            corpus.push(Vec::new());
        }
        Mutator { random: SmallRng::seed_from_u64(seed), corpus }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut bytes = self.pick().clone();
        for _ in 0..self.random.random_range(1..=MOST_CHANGES) {
            self.change(&mut bytes);
        }
        bytes.truncate(MOST_BYTES);
        bytes
    }

    fn pick(&mut self) -> &Vec<u8> {
        let index = self.random.random_range(0..self.corpus.len());
        &self.corpus[index]
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let from = self.random.random_range(0..=bytes.len());
        let len = self.random.random_range(0..=16.min(bytes.len() - from));
        match self.random.random_range(0..7) {
            0 => bytes.truncate(from),
            1 => drop(bytes.drain(from..from + len)),
            2 => bytes.splice(from..from, bytes[from..from + len].to_vec()).for_each(drop),
            3 => self.insert(bytes, from),
            4 => {
                let other = self.pick().clone();
                let at = from.min(other.len());
                bytes.truncate(from);
                bytes.extend_from_slice(&other[at..]);
            }
            5 => {
                let number = NUMBERS[self.random.random_range(0..NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.random.random_range(0..4)].min(bytes.len() - from);
                bytes[from..from + width].copy_from_slice(&number[..width]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(from) {
                    *byte ^= 1 << self.random.random_range(0..8);
                }
            }
        }
    }

    fn insert(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let len = self.random.random_range(1..9);
        let new: Vec<u8> = (0..len).map(|_| self.random.random()).collect();
        bytes.splice(at..at, new);
    }
}
