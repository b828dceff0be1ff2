//! Training with ranks of unequal speed: every rank gets samples in proportion, and the weighted average of the ranks' gradients
//! is the gradient of the whole batch.
//!
//! Fits y = 3 x + 1 by gradient descent on the described cluster's 16 ranks. Gradients are added up by the real schedule
//! in the simulator, in fixed point, and compared in every step with the gradient that one process computes alone.
//!
//! ```console
//! cargo run -p hetccl-sim --example balanced_training
//! ```

use std::sync::Arc;

use hetccl_core::algorithms::by_name;
use hetccl_core::balance::split;
use hetccl_core::topology::Hierarchy;
use hetccl_core::{Call, Collective, Layout};
use hetccl_sim::cluster::Cluster;
use hetccl_sim::{Arithmetic, Config, RankResult, Simulation};

/// Fixed point: so many steps a unit.
const ONE: f64 = 65_536.0;

/// The gradient of the squared error of y = a x + b, summed over samples.
fn gradient_sum(samples: std::ops::Range<u64>, [a, b]: [f64; 2]) -> [f64; 2] {
    samples.fold([0.0, 0.0], |[da, db], sample| {
        let x = (sample % 16) as f64 / 16.0;
        let error = a * x + b - (3.0 * x + 1.0);
        [da + 2.0 * error * x, db + 2.0 * error]
    })
}

fn main() {
    let text = include_str!("../../clusters/hetccl-paper.toml");
    let cluster = Cluster::parse(text, "hetccl-paper.toml".as_ref()).expect("the file is good");
    let size = cluster.topology.len();
    let hierarchy = Arc::new(Hierarchy::new(cluster.topology));
    let batch = 512;
    // V100 and W7800, as measured by somebody.
    let speeds = [[100.0; 8], [55.0; 8]].concat();
    let plan = split(&speeds, batch).expect("speeds and batch are good");
    println!(
        "samples {:?}: step {:.3} s, even {:.3} s",
        plan.samples, plan.step_s, plan.even_step_s
    );

    let algorithm = by_name(Collective::Allreduce, "hetero").expect("it is in the table");
    let calls: Vec<Call> = (0..size)
        .map(|rank| Call {
            topology: Some(Arc::clone(&hierarchy)),
            ..Call::new(Collective::Allreduce, rank, size, Layout::uniform(1))
        })
        .collect();
    let mut model = [0.0, 0.0];
    let mut worst = 0.0f64;
    for _ in 0..200 {
        let initial = |rank: usize| {
            let first: u64 = plan.samples[..rank].iter().sum();
            let own = plan.samples[rank];
            let mean = gradient_sum(first..first + own, model).map(|sum| sum / own as f64);
            let weight = own as f64 / batch as f64;
            let fixed = mean.map(|x| (x * weight * ONE).round() as i32 as u32);
            (vec![fixed], vec![[0, 0]])
        };
        let outcome = Simulation::new(Config::default(), Arithmetic::Sum)
            .run(algorithm, &calls, initial)
            .expect("nobody is lost");
        let averages: Vec<[f64; 2]> = outcome
            .ranks
            .iter()
            .map(|result| match result {
                RankResult::Done(output) => output[0].map(|x| f64::from(x as i32) / ONE),
                other => panic!("a rank ended with {other:?}"),
            })
            .collect();
        assert!(averages.iter().all(|average| *average == averages[0]), "all ranks have the same");
        let whole = gradient_sum(0..batch, model).map(|sum| sum / batch as f64);
        for (found, wanted) in averages[0].into_iter().zip(whole) {
            worst = worst.max((found - wanted).abs());
            assert!((found - wanted).abs() < size as f64 / ONE, "{found} instead of {wanted}");
        }
        model = [model[0] - 0.5 * averages[0][0], model[1] - 0.5 * averages[0][1]];
    }
    println!("y = {:.3} x + {:.3}; gradients differ by {worst:.6} at most", model[0], model[1]);
    assert!((model[0] - 3.0).abs() < 0.02 && (model[1] - 1.0).abs() < 0.02);
}
