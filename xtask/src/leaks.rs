//! Memory over communicators made and freed, under valgrind.

use std::time::Duration;

use anyhow::Result;

use crate::command::{self, step};
use crate::mpi::{self, Library};
use crate::{install, setup};

const LIMIT: Duration = Duration::from_secs(900);

/// Runs the churn program under valgrind and looks for leaks with a frame of hetccl's. Whether there are none.
///
/// # Errors
/// What could not be installed, built or run.
pub fn run() -> Result<bool> {
    setup::packages(&[setup::BUILD, setup::LEAKS])?;
    let prefix = command::target_dir().join("prefix");
    step("building and installing", || install::release(&prefix))?;
    let program = mpi::compile("churn", Library::OpenMpi)?;
    let mut clean = true;
    for transport in ["ucx", "pml"] {
        let library = Library::Hetccl { prefix: &prefix, transport };
        let text = step(&format!("valgrind over {transport}"), || {
            let mut command = mpi::mpirun(library, 2, LIMIT);
            command.args([
                "valgrind",
                "--quiet",
                "--leak-check=full",
                "--show-leak-kinds=definite",
            ]);
            command.args(["--num-callers=30", "--undef-value-errors=no"]);
            command.arg(&program).args(["300", "no-limit"]);
            let output = command::output(&mut command)?;
            print!("{}", String::from_utf8_lossy(&output.stdout));
            Ok(String::from_utf8_lossy(&output.stderr).into_owned())
        })?;
        let ours = reports(&text).into_iter().filter(|report| report.contains("hetccl"));
        let growing: Vec<String> = ours.filter(|report| blocks(report) >= 100).collect();
        for report in &growing {
            println!("{report}");
        }
        println!("{transport}: {} leaks that grow with the number of communicators", growing.len());
        clean &= growing.is_empty();
    }
    Ok(clean)
}

/// Valgrind's leak reports: paragraphs that say so.
fn reports(text: &str) -> Vec<String> {
    let mut reports = vec![String::new()];
    for line in text.lines() {
        let body = line.trim_start_matches("==").trim_start_matches(|c: char| c.is_ascii_digit());
        let body = body.trim_start_matches("==").trim();
        if body.is_empty() {
            reports.push(String::new());
        } else if let Some(last) = reports.last_mut() {
            last.push_str(body);
            last.push('\n');
        }
    }
    reports.retain(|report| report.contains("definitely lost in"));
    reports
}

/// How many blocks a report is about: one for each communicator, or a few for the process.
fn blocks(report: &str) -> usize {
    let Some((_, rest)) = report.split_once("bytes in ") else { return 0 };
    let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    number.replace(',', "").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_told_from_noise() {
        let text = "==7== Warning: x\n==7== \n==7== 64 bytes in 1,200 blocks are definitely lost in loss record 1\n\
                    ==7==    at hetccl\n==7== \n";
        let found = reports(text);
        assert_eq!(found.len(), 1);
        assert_eq!(blocks(&found[0]), 1200);
    }
}
