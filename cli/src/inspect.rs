//! `hetccl inspect`: where the ranks of a running or failed job are.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use hetccl_runtime::watch::{CommunicatorRecord, OperationRecord, Snapshot};
use serde_json::{Value, json};

/// What to look at.
#[derive(clap::Args)]
pub struct Args {
    /// Processes of this host, by number; they may be stopped or stuck
    #[arg(required_unless_present = "merge")]
    pids: Vec<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Say who is late, from files: journals that HETCCL_DUMP left, or JSON of this command
    #[arg(long, num_args = 1.., value_name = "FILES")]
    merge: Vec<PathBuf>,
}

/// Prints the journals.
///
/// # Errors
/// A process or file without a journal.
pub fn run(args: &Args) -> Result<()> {
    let mut journals = Vec::new();
    for &pid in &args.pids {
        journals.push(to_json(&Snapshot::of_process(pid)?));
    }
    for path in &args.merge {
        journals.extend(from_file(path)?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&journals)?);
    } else if args.merge.is_empty() {
        journals.iter().for_each(show);
    }
    if !args.merge.is_empty() && !args.json {
        print!("{}", late(&journals));
    }
    Ok(())
}

fn from_file(path: &PathBuf) -> Result<Vec<Value>> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if let Ok(snapshot) = Snapshot::parse(&bytes) {
        return Ok(vec![to_json(&snapshot)]);
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Array(journals)) => Ok(journals),
        _ => bail!("{} is neither a journal nor JSON of hetccl inspect", path.display()),
    }
}

fn to_json(snapshot: &Snapshot) -> Value {
    json!({
        "pid": snapshot.pid,
        "rank": snapshot.rank,
        "ranks": snapshot.size,
        "host": snapshot.host,
        "communicators": snapshot.communicators.iter().map(communicator).collect::<Vec<_>>(),
    })
}

fn communicator(record: &CommunicatorRecord) -> Value {
    json!({
        "context": record.context,
        "rank": record.rank,
        "ranks": record.size,
        "started": record.started,
        "broken_at": record.broken.map(|(_, number)| number),
        "waiting_since_ms": record.waiting_since_ms,
        "operations": record.operations.iter().map(operation).collect::<Vec<_>>(),
    })
}

fn operation(record: &OperationRecord) -> Value {
    json!({
        "number": record.number,
        "kind": record.kind,
        "call": record.call.to_string(),
        "bytes": record.bytes,
        "state": record.state.name(),
    })
}

fn show(journal: &Value) {
    println!(
        "rank {} of {} (host {}, pid {})",
        journal["rank"],
        journal["ranks"],
        journal["host"].as_str().unwrap_or("?"),
        journal["pid"]
    );
    for comm in journal["communicators"].as_array().into_iter().flatten() {
        println!(
            "  communicator {}, rank {} of {}: {} calls",
            comm["context"], comm["rank"], comm["ranks"], comm["started"]
        );
        for op in comm["operations"].as_array().into_iter().flatten().rev().take(8) {
            println!("    {}", place(op));
        }
    }
}

fn place(op: &Value) -> String {
    format!(
        "number {}: {}, {} bytes, {}",
        op["number"],
        op["call"].as_str().unwrap_or("?"),
        op["bytes"],
        op["state"].as_str().unwrap_or("?")
    )
}

/// Who is furthest behind in each communicator, and where the others are.
fn late(journals: &[Value]) -> String {
    let mut communicators = BTreeMap::<_, Vec<_>>::new();
    for journal in journals {
        for comm in journal["communicators"].as_array().into_iter().flatten() {
            let started = comm["started"].as_u64().unwrap_or(0);
            let key = (comm["context"].as_u64().unwrap_or(0), comm["ranks"].as_u64().unwrap_or(0));
            communicators.entry(key).or_default().push((started, journal, comm));
        }
    }
    let mut text = String::new();
    for ((context, ranks), mut members) in communicators {
        members.sort_by_key(|(started, _, comm)| (*started, comm["rank"].as_u64()));
        let most = members.iter().map(|(started, ..)| *started).max().unwrap_or(0);
        let here = members.len();
        text += &format!("communicator {context}: {here} of {ranks} ranks, {most} calls at most\n");
        for (started, journal, comm) in &members {
            let last = comm["operations"].as_array().and_then(|all| all.last());
            let behind = match most - started {
                0 => String::new(),
                calls => format!("late by {calls} calls: "),
            };
            text += &format!(
                "  {behind}rank {} (host {}, pid {}): {}\n",
                comm["rank"],
                journal["host"].as_str().unwrap_or("?"),
                journal["pid"],
                last.map_or_else(|| "no call yet".to_owned(), place)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_rank_is_named() {
        let journal = |rank: u64, started: u64| {
            json!({"pid": 100 + rank, "rank": rank, "ranks": 2, "host": "a", "communicators": [
                {"context": 0, "rank": rank, "ranks": 2, "started": started, "operations": [
                    {"number": started - 1, "call": "barrier", "bytes": 0, "state": "running"}]}]})
        };
        let text = late(&[journal(0, 5), journal(1, 3)]);
        assert!(
            text.contains("late by 2 calls: rank 1 (host a, pid 101): number 2: barrier"),
            "{text}"
        );
        assert!(text.contains("  rank 0 (host a, pid 100)"), "{text}");
    }
}
