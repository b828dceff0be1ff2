//! NCCL's settings: from the environment, or from a file as NCCL has it. What hetccl does not know is named once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Once, OnceLock};

use crate::log::{self, Level};

/// Those that mean something here.
const KNOWN: [&str; 9] = [
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_HOSTID",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    // A container's note of what it has.
    "NCCL_VERSION",
];
/// Those that programs read themselves.
const OF_PROGRAMS: [&str; 3] =
    ["NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG"];

/// A setting of NCCL's: the environment's, or the file's.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().or_else(|| file().get(name).cloned())
}

/// NCCL_CONF_FILE, or the user's file, or the host's.
fn file() -> &'static BTreeMap<String, String> {
    static FILE: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    FILE.get_or_init(|| {
        let places = match std::env::var_os("NCCL_CONF_FILE") {
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let home = std::env::home_dir().map(|home| home.join(".nccl.conf"));
                home.into_iter().chain([PathBuf::from("/etc/nccl.conf")]).collect()
            }
        };
        let text = places.iter().find_map(|path| std::fs::read_to_string(path).ok());
        parse(&text.unwrap_or_default())
    })
}

/// Lines `NAME=VALUE`; `#` begins a comment.
pub(crate) fn parse(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Which of these names mean nothing here, in order.
fn ignored(names: impl Iterator<Item = String>) -> Vec<String> {
    let of_nccl = names.filter(|name| name.starts_with("NCCL_"));
    let unknown = of_nccl
        .filter(|name| !KNOWN.contains(&name.as_str()) && !OF_PROGRAMS.contains(&name.as_str()));
    let mut unknown: Vec<String> = unknown.collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

/// Names what is ignored, once in a process.
pub(crate) fn tell_ignored() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let names = ignored(names.chain(file().keys().cloned()));
        if !names.is_empty() {
            log::line(Level::Nothing, &format!("ignored by hetccl: {}", names.join(", ")));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names_values_and_comments() {
        let read =
            parse("# NCCL\nNCCL_DEBUG = INFO # loud\n\nNCCL_SOCKET_IFNAME=eth0,eth1\nnothing\n");
        assert_eq!(read["NCCL_DEBUG"], "INFO");
        assert_eq!(read["NCCL_SOCKET_IFNAME"], "eth0,eth1");
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let names = [
            "PATH",
            "NCCL_DEBUG",
            "NCCL_NVLS_ENABLE",
            "NCCL_ALGO",
            "NCCL_BLOCKING_WAIT",
            "NCCL_ALGO",
        ];
        assert_eq!(ignored(names.map(String::from).into_iter()), ["NCCL_ALGO", "NCCL_NVLS_ENABLE"]);
    }
}
