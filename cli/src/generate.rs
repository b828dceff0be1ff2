//! `hetccl generate`: documentation that is made from the program itself: man pages and completions from the same source as
//! `--help`, the reference of settings from the runtime's tables.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use hetccl_runtime::VARIABLES;

use crate::info::setting_list;

/// Where each shell looks for completions, below a prefix.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/hetccl"),
    (Shell::Zsh, "share/zsh/vendor-completions/_hetccl"),
    (Shell::Fish, "share/fish/vendor_completions.d/hetccl.fish"),
];

#[derive(clap::Args)]
pub struct Args {
    /// Write man pages and completions below DIR/share
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Write the reference of settings to a file, in Markdown
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

/// Writes what was asked for.
///
/// # Errors
/// Files that can't be written.
pub fn run(args: &Args) -> Result<()> {
    if let Some(prefix) = &args.prefix {
        for (name, page) in man_pages()? {
            let section = name.rsplit('.').next().unwrap_or("1");
            write(&prefix.join(format!("share/man/man{section}")).join(&name), &page)?;
        }
        for (shell, place) in SHELLS {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut crate::Cli::command(), "hetccl", &mut text);
            write(&prefix.join(place), &text)?;
        }
    }
    if let Some(file) = &args.settings {
        write(file, settings_markdown().as_bytes())?;
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

/// Every man page: file name and text. One per command that is shown in `--help`, and `hetccl-settings.7`.
fn man_pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut top = crate::Cli::command().disable_help_subcommand(true);
    top.build();
    let mut pages = vec![("hetccl.1".to_owned(), page(top.clone(), "hetccl")?)];
    for command in top.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("hetccl-{}", command.get_name());
        pages.push((format!("{name}.1"), page(command.clone(), &name)?));
    }
    pages.push(("hetccl-settings.7".to_owned(), settings_page().into_bytes()));
    Ok(pages)
}

fn page(command: clap::Command, name: &str) -> Result<Vec<u8>> {
    // clap wants names that live as long as the program.
    let title: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let manual = Man::new(command.display_name(title).version(env!("CARGO_PKG_VERSION")))
        .title(name.to_uppercase())
        .manual("hetccl manual")
        .source(concat!("hetccl ", env!("CARGO_PKG_VERSION")))
        .date("");
    let mut text = Vec::new();
    manual.render(&mut text).with_context(|| format!("making the man page of {name}"))?;
    let mut more = Roff::new();
    more.control("SH", ["SEE ALSO"]);
    more.text([bold("hetccl"), roman("(1), "), bold("hetccl-settings"), roman("(7), ")]);
    more.text([bold("mpirun"), roman("(1), "), bold("ompi_info"), roman("(1)")]);
    text.extend(more.render().into_bytes());
    Ok(text)
}

fn settings_page() -> String {
    let mut page = Roff::new();
    let source = concat!("hetccl ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["HETCCL-SETTINGS", "7", "", source, "hetccl manual"]);
    page.control("SH", ["NAME"]);
    page.text([roman("hetccl-settings - settings and environment variables of hetccl")]);
    page.control("SH", ["MCA PARAMETERS"]);
    page.text([
        bold("mpirun --mca coll_hetccl_NAME VALUE"),
        roman(", or OMPI_MCA_coll_hetccl_NAME in the environment; the same on all ranks."),
    ]);
    for setting in setting_list() {
        page.control("TP", []);
        page.text([bold(&setting.name), roman(format!(" [{}]", setting.default))]);
        page.text([roman(setting.help)]);
    }
    page.control("SH", ["ENVIRONMENT"]);
    for variable in VARIABLES {
        page.control("TP", []);
        page.text([bold(variable.name), roman(format!(" ({})", variable.reader))]);
        page.text([roman(variable.help)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("hetccl"), roman("(1), "), bold("ompi_info"), roman("(1)")]);
    page.render()
}

/// `docs/settings.md`.
fn settings_markdown() -> String {
    let mut text = String::from(
        "# Every setting\n\nMade by `hetccl generate --settings` from the tables that the component registers its parameters \
         from; a test keeps it current.\n\n## MCA parameters\n\n`mpirun --mca coll_hetccl_NAME VALUE`, or \
         `OMPI_MCA_coll_hetccl_NAME` in the environment; the same on all ranks.\n\n| name | default | meaning |\n|---|---|---|\n",
    );
    let cell = |help: &str| help.replace('|', "\\|");
    for s in setting_list() {
        let _ = writeln!(text, "| `{}` | {} | {} |", s.name, s.default, cell(&s.help));
    }
    text.push_str("\n## Environment variables\n\n| name | read by | meaning |\n|---|---|---|\n");
    for v in VARIABLES {
        let _ = writeln!(text, "| `{}` | {} | {} |", v.name, v.reader, cell(v.help));
    }
    text.push_str("\nUCX's own `UCX_*` variables win over hetccl's wishes.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli is inside the workspace")
    }

    #[test]
    fn the_reference_of_settings_is_current() {
        let file = root().join("docs/settings.md");
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            kept == settings_markdown(),
            "docs/settings.md is old: cargo run -p hetccl-cli -- generate --settings docs/settings.md"
        );
    }

    #[test]
    fn every_command_has_a_man_page_that_names_its_options() {
        let pages = man_pages().unwrap();
        let text = |name: &str| {
            let page = pages.iter().find(|(file, _)| file == name);
            String::from_utf8(page.unwrap_or_else(|| panic!("{name} is missing")).1.clone())
                .unwrap()
        };
        assert!(text("hetccl-info.1").contains("algorithms"));
        assert!(text("hetccl-settings.7").contains("shared_memory"));
        for command in crate::Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let page = text(&format!("hetccl-{}.1", command.get_name()));
            for long in command.get_opts().filter_map(clap::Arg::get_long) {
                assert!(
                    page.replace("\\-", "-").contains(long),
                    "{long} in {}",
                    command.get_name()
                );
            }
        }
    }

    /// Quoted names of variables in the product's sources are in the table.
    #[test]
    fn no_environment_variable_is_left_out() {
        let mut missing = Vec::new();
        for folder in [
            "bootstrap",
            "ucx-transport",
            "gpu",
            "runtime",
            "mca",
            "plugin",
            "nccl-shim",
            "perf",
            "cli",
        ] {
            sources(&root().join(folder).join("src"), &mut |file, text| {
                for word in text.split('"').filter(|word| is_variable(word)) {
                    let other = OTHERS.contains(&word);
                    if !other && !VARIABLES.iter().any(|variable| variable.name == word) {
                        missing.push(format!("{word} in {}", file.display()));
                    }
                }
            });
        }
        assert!(missing.is_empty(), "not in runtime/src/variables.rs: {missing:?}");
    }

    /// Words that look like variables that users set: those between a parent and its ranks, of tests, and of NCCL's that are
    /// only named as ignored.
    const OTHERS: [&str; 9] = [
        "HETCCL_PERF_ID",
        "HETCCL_PERF_RANK",
        "HETCCL_TEST_LIBRARY",
        "NCCL_ALGO",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_NVLS_ENABLE",
        "NCCL_VERSION",
    ];

    fn is_variable(word: &str) -> bool {
        let upper = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
        let rest = word.strip_prefix("HETCCL_").or_else(|| word.strip_prefix("NCCL_"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(upper))
    }

    fn sources(folder: &Path, see: &mut impl FnMut(&Path, &str)) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, see);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                see(&path, &std::fs::read_to_string(&path).expect("a source"));
            }
        }
    }
}
