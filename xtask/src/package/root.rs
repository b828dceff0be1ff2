//! Fresh Debian systems in folders, in which commands run as in one of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{command, setup};

/// A system in a folder. It goes when this is dropped.
pub(super) struct Root {
    folder: PathBuf,
}

/// Runs in a mount namespace of its own, so that no mount outlives it. Arguments: the root, the folder of kept archives, then
/// the command.
const ENTER: &str = r#"set -e
root=$1; archives=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$archives" "$root/var/cache/apt/archives"
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -f /etc/hosts ] || cp /etc/hosts "$root/etc/hosts"
exec chroot "$root" "$@""#;

const LIMIT: Duration = Duration::from_secs(900);

impl Root {
    /// A new system of a suite such as `bookworm`, from a copy that is kept.
    ///
    /// # Errors
    /// Who is not root, or what debootstrap says.
    pub(super) fn new(suite: &str) -> Result<Root> {
        if !command::is_root() {
            bail!(
                "a root of {suite} is made by debootstrap, which wants root: sudo cargo xtask test-packages"
            );
        }
        setup::packages(&[setup::ROOTS])?;
        let roots = command::target_dir().join("roots");
        std::fs::create_dir_all(&roots)?;
        let roots = roots.canonicalize()?;
        let base = roots.join(suite);
        if !base.join("etc/os-release").exists() {
            let unfinished = roots.join(format!("{suite}.new"));
            if unfinished.exists() {
                std::fs::remove_dir_all(&unfinished)?;
            }
            let mut make = command::limited("debootstrap", LIMIT);
            make.args(["--variant=minbase", suite]).arg(&unfinished).arg(mirror());
            command::capture(&mut make)?;
            std::fs::rename(&unfinished, &base)?;
        }
        let folder = roots.join(format!("{suite}.{}", std::process::id()));
        command::capture(
            Command::new("cp").args(["-a", "--reflink=auto"]).arg(&base).arg(&folder),
        )?;
        std::fs::create_dir_all(roots.join(format!("{suite}.archives/partial")))?;
        Ok(Root { folder })
    }

    /// Where a path of the system is from outside.
    pub(super) fn at(&self, inside: &str) -> PathBuf {
        self.folder.join(inside.trim_start_matches('/'))
    }

    /// Runs a shell's command line inside.
    ///
    /// # Errors
    /// When it can't be started.
    pub(super) fn output(&self, line: &str) -> Result<Output> {
        let archives = self.folder.with_extension("archives");
        let mut run = command::limited("unshare", LIMIT);
        run.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "enter"]);
        run.arg(&self.folder).arg(archives).args(["sh", "-c", line]);
        run.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        run.env("HOME", "/root").env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command::output(&mut run)
    }

    /// As [`Root::output`], and what it printed.
    ///
    /// # Errors
    /// When it does not succeed.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        println!("    # {line}");
        let output = self.output(line)?;
        if !output.status.success() {
            bail!(
                "in {}: {line}\n  ended with {}\n{}",
                self.folder.display(),
                output.status,
                command::tail(&output)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Puts a file into a folder inside.
    ///
    /// # Errors
    /// When it can't be copied.
    pub(super) fn put(&self, file: &Path, folder: &str) -> Result<()> {
        let to = self.at(folder);
        std::fs::create_dir_all(&to)?;
        let name = file.file_name().context("a file has a name")?;
        std::fs::copy(file, to.join(name))
            .with_context(|| format!("copying {}", file.display()))?;
        Ok(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}

/// Debian's mirror as this machine's apt has it; elsewhere Debian's own.
fn mirror() -> String {
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let text: String =
        sources.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let mut words = text.split_whitespace();
    let found = words
        .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"));
    found.unwrap_or("http://deb.debian.org/debian").to_owned()
}
