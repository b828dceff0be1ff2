//! A real application from the distribution: LAMMPS, with and without hetccl.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::{self, step};
use crate::mpi::{self, Library};
use crate::{install, setup};

const LIMIT: Duration = Duration::from_secs(300);
const RANKS: usize = 4;

/// Runs a small melt both ways. Whether the printed thermodynamics are the same.
///
/// # Errors
/// What could not be installed, built or run.
pub fn run() -> Result<bool> {
    setup::packages(&[setup::BUILD, setup::LAMMPS])?;
    let prefix = command::target_dir().join("prefix");
    step("building and installing", || install::release(&prefix))?;
    let stock = step("LAMMPS under stock Open MPI", || thermo(Library::OpenMpi))?;
    let mut same = true;
    for transport in ["ucx", "pml"] {
        let library = Library::Hetccl { prefix: &prefix, transport };
        let ours = step(&format!("LAMMPS under hetccl over {transport}"), || thermo(library))?;
        for (a, b) in stock.iter().zip(&ours) {
            println!("    stock  {a}\n    hetccl {b}");
        }
        let equal = stock == ours;
        println!(
            "{transport}: {} lines, {}",
            ours.len(),
            if equal { "the same" } else { "DIFFERENT" }
        );
        same &= equal;
    }
    Ok(same)
}

/// The lines of the thermodynamic table.
fn thermo(library: Library<'_>) -> Result<Vec<String>> {
    let input = command::root().join("tests/lammps/melt.in");
    let mut command = mpi::mpirun(library, RANKS, LIMIT);
    command.args(["lmp", "-log", "none", "-in"]).arg(&input);
    let text = command::capture(&mut command)?;
    let table: Vec<String> = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Step"))
        .take_while(|line| !line.starts_with("Loop time"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    if table.len() < 3 {
        bail!("LAMMPS printed no table of thermodynamics:\n{text}");
    }
    Ok(table)
}
