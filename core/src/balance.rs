//! How to share a global batch among ranks of unequal speed, and the weights that keep the mean gradient right.
//!
//! A step takes as long as its slowest rank: max over ranks of (samples of the rank) / (its samples per second). The ideal split gives
//! every rank samples in proportion to its speed; samples are whole, so the shares are rounded such that the step is shortest.
//! With w(i) = samples of rank i, the average sum(w(i) x(i)) / sum(w(i)) of the ranks' mean gradients x(i) is the mean over all
//! samples of the batch.

use std::cmp::Ordering;

/// A split of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Samples of each rank. Also the ranks' weights.
    pub samples: Vec<u64>,
    /// Seconds until the slowest rank is done.
    pub step_s: f64,
    /// Seconds with an even split.
    pub even_step_s: f64,
    /// Seconds if samples could be divided.
    pub ideal_step_s: f64,
}

/// Why a batch can't be split.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BalanceError {
    /// There are no ranks.
    #[error("no speeds were given")]
    NoRanks,
    /// A speed is no positive number.
    #[error("the speed of rank {rank} is {speed} samples/s; allowed are positive numbers")]
    Speed {
        /// The rank.
        rank: usize,
        /// Its speed.
        speed: f64,
    },
    /// Too few samples.
    #[error("a batch of {batch} samples for {ranks} ranks; every rank needs one at least")]
    Batch {
        /// Samples.
        batch: u64,
        /// Ranks.
        ranks: usize,
    },
}

/// Splits `batch` samples among ranks of these speeds in samples per second; every rank gets one at least. The step is the shortest
/// that whole samples allow.
///
/// # Errors
/// When a speed is no positive number, or there are fewer samples than ranks.
pub fn split(speeds: &[f64], batch: u64) -> Result<Split, BalanceError> {
    let ranks = speeds.len();
    if ranks == 0 {
        return Err(BalanceError::NoRanks);
    }
    if let Some(rank) = speeds.iter().position(|speed| !(speed.is_finite() && *speed > 0.0)) {
        return Err(BalanceError::Speed { rank, speed: speeds[rank] });
    }
    if batch < ranks as u64 {
        return Err(BalanceError::Batch { batch, ranks });
    }
    let total: f64 = speeds.iter().sum();
    // Shares rounded down, then one sample at a time to whoever is done first with it.
    let share = |&speed: &f64| ((batch as f64 * speed / total) as u64).max(1);
    let mut samples: Vec<u64> = speeds.iter().map(share).collect();
    let done =
        |samples: &[u64], rank: usize, more: u64| (samples[rank] + more) as f64 / speeds[rank];
    let by = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    while samples.iter().sum::<u64>() < batch {
        let first = (0..ranks).min_by(|&a, &b| by(done(&samples, a, 1), done(&samples, b, 1)));
        samples[first.unwrap_or(0)] += 1;
    }
    // The least of one sample may have made the shares too many.
    while samples.iter().sum::<u64>() > batch {
        let last = (0..ranks)
            .filter(|&rank| samples[rank] > 1)
            .max_by(|&a, &b| by(done(&samples, a, 0), done(&samples, b, 0)));
        samples[last.unwrap_or(0)] -= 1;
    }
    let step = |samples: &[u64]| (0..ranks).map(|rank| done(samples, rank, 0)).fold(0.0, f64::max);
    let even: Vec<u64> = (0..ranks as u64)
        .map(|rank| batch / ranks as u64 + u64::from(rank < batch % ranks as u64))
        .collect();
    Ok(Split {
        step_s: step(&samples),
        even_step_s: step(&even),
        ideal_step_s: batch as f64 / total,
        samples,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_within_three_percent_of_the_ideal_for_ratios_up_to_four() {
        for ratio in (10..=40).map(|tenths| f64::from(tenths) / 10.0) {
            for (slow, fast) in [(1, 1), (4, 4), (8, 8), (8, 2), (3, 5)] {
                let speeds: Vec<f64> = [vec![100.0; slow], vec![100.0 * ratio; fast]].concat();
                let batch = 64 * (slow + fast) as u64;
                let split = split(&speeds, batch).unwrap();
                assert_eq!(split.samples.iter().sum::<u64>(), batch);
                let over = split.step_s / split.ideal_step_s;
                assert!(
                    (1.0 - 1e-12..=1.03).contains(&over),
                    "ratio {ratio}, {slow}+{fast}: {over}"
                );
                assert!(split.step_s <= split.even_step_s);
            }
        }
    }

    #[test]
    fn no_other_split_of_whole_samples_is_shorter() {
        let speeds = [3.0, 1.0, 2.5];
        for batch in 3..30u64 {
            let found = split(&speeds, batch).unwrap();
            for a in 1..batch - 1 {
                for b in 1..batch - a {
                    let other = [a, b, batch - a - b];
                    let step = (0..3).map(|i| other[i] as f64 / speeds[i]).fold(0.0, f64::max);
                    assert!(step >= found.step_s - 1e-12, "{batch}: {other:?} beats {found:?}");
                }
            }
        }
    }

    #[test]
    fn the_weighted_average_is_the_mean_of_the_whole_batch() {
        // Sample s has the gradient s * s; rank means are weighted by the ranks' samples.
        let split = split(&[1.0, 3.0, 2.0], 17).unwrap();
        let mut next = 0u64;
        let mut weighted = 0.0;
        for &samples in &split.samples {
            let sum: u64 = (next..next + samples).map(|s| s * s).sum();
            next += samples;
            weighted += samples as f64 * (sum as f64 / samples as f64);
        }
        let all: u64 = (0..17).map(|s| s * s).sum();
        assert!((weighted / 17.0 - all as f64 / 17.0).abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert_eq!(split(&[], 4), Err(BalanceError::NoRanks));
        assert_eq!(split(&[1.0, -2.0], 4), Err(BalanceError::Speed { rank: 1, speed: -2.0 }));
        assert_eq!(split(&[1.0, 1.0], 1), Err(BalanceError::Batch { batch: 1, ranks: 2 }));
    }
}
