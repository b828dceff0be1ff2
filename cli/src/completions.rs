//! `hetccl completions`: what a shell needs to complete hetccl's commands and options.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  . <(hetccl completions bash)\n  \
    hetccl completions fish > ~/.config/fish/completions/hetccl.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints them.
///
/// # Errors
/// When the output can't be written.
pub fn run(args: &Args) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "hetccl", &mut text);
    crate::info::print_all(&text)
}
