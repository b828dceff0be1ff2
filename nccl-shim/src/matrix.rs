//! `MATRIX.md`: every function, what hetccl does with it, and who uses it.

use crate::entry::{Function, State};
use crate::exports;

/// Who uses a function: the name of the list, and the list.
const USERS: [(&str, &str); 5] = [
    ("PyTorch 2.10", include_str!("../../tests/nccl/torch-2.10.0.txt")),
    ("PyTorch 2.11", include_str!("../../tests/nccl/torch-2.11.0.txt")),
    ("PyTorch 2.13", include_str!("../../tests/nccl/torch-2.13.0.txt")),
    ("PyTorch 2.15", include_str!("../../tests/nccl/torch-2.15.0.txt")),
    ("RCCL", include_str!("../../tests/nccl/symbols-rccl.txt")),
];

fn matrix() -> String {
    let mut text = String::from(
        "# What libnccl.so.2 and librccl.so.1 do\n\n\
         Generated from the table of exports: `UPDATE_MATRIX=1 cargo test -p hetccl-nccl matrix`. `own`: hetccl does it. \
         `refused`: returns\n`ncclInvalidUsage` with a text for `ncclGetLastError`. \
         `delegated`: where calls go to the vendor's library, this one does, as far as\nits version has it. Every function has its `pnccl` twin. \
         Functions of the last rows are in\nlibrccl.so.1 only.\n\n",
    );
    text.push_str("| function | state | delegated |");
    USERS.iter().for_each(|(name, _)| text.push_str(&format!(" {name} |")));
    text.push_str("\n|---|---|---|---|---|---|---|---|\n");
    let mut all: Vec<Function> = exports::NCCL.concat();
    all.sort_by_key(|function| function.name);
    all.extend_from_slice(exports::RCCL);
    for Function { name, state, handed_on } in all {
        let state = if state == State::Own { "own" } else { "refused" };
        let delegated = if handed_on { "yes" } else { "" };
        let shown = if name.starts_with("_Z") { "ncclCommDump (C++)" } else { name };
        text.push_str(&format!("| `{shown}` | {state} | {delegated} |"));
        for (_, list) in USERS {
            text.push_str(if list.lines().any(|used| used == name) { " x |" } else { " |" });
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_matrix_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/MATRIX.md");
    let wanted = matrix();
    if std::env::var_os("UPDATE_MATRIX").is_some() {
        std::fs::write(path, &wanted).expect("the folder is writable");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == wanted, "UPDATE_MATRIX=1 cargo test -p hetccl-nccl matrix");
}

#[test]
fn the_table_is_the_list_of_nccl() {
    let mut table: Vec<&str> =
        exports::NCCL.concat().iter().map(|function| function.name).collect();
    let mut list: Vec<&str> = include_str!("../../tests/nccl/symbols-2.32.3.txt").lines().collect();
    table.sort_unstable();
    list.sort_unstable();
    assert_eq!(table, list);
}
