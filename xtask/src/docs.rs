//! `cargo xtask docs`: the pages of `docs/` as a site, by mkdocs. A broken link is an error.

use std::process::Command;

use anyhow::Result;

use crate::{command, python, setup};

const TOOLS: [&str; 1] = ["mkdocs==1.6.1"];

/// Builds into `target/docs` and says where.
///
/// # Errors
/// What could not be installed, and what mkdocs says against the pages.
pub fn run() -> Result<()> {
    setup::packages(&[setup::DOCS])?;
    let environment = python::environment("docs", &TOOLS)?;
    let site = command::target_dir().join("docs");
    let site = std::path::absolute(site)?;
    let mut build = Command::new(environment.join("bin/mkdocs"));
    build.current_dir(command::root()).args(["build", "--strict", "--quiet"]);
    build.args(["--config-file", "packaging/mkdocs.yml", "--site-dir"]).arg(&site);
    command::run(&mut build)?;
    println!("{}", site.join("index.html").display());
    Ok(())
}
