//! What is told of connections that were refused: the first ones for each reason one by one, then a number now and then.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lines for a reason before only numbers are told.
const FIRST_LINES: u32 = 3;
/// Between two lines after those.
const PAUSE: Duration = Duration::from_secs(30);
/// Reasons that are counted apart; strangers could think of any number of them.
const MOST_REASONS: usize = 32;

pub(crate) struct Refusals {
    notice: Arc<dyn Fn(&str) + Send + Sync>,
    by_reason: HashMap<String, Told>,
}

#[derive(Default)]
struct Told {
    lines: u32,
    untold: u64,
    last: Option<Instant>,
}

impl Refusals {
    pub(crate) fn new(notice: Arc<dyn Fn(&str) + Send + Sync>) -> Refusals {
        Refusals { notice, by_reason: HashMap::new() }
    }

    /// A connection was refused, at this time.
    pub(crate) fn add(&mut self, from: Option<SocketAddr>, why: &str, now: Instant) {
        let known = self.by_reason.len() < MOST_REASONS || self.by_reason.contains_key(why);
        let told =
            self.by_reason.entry(if known { why.into() } else { String::new() }).or_default();
        let recent = told.last.is_some_and(|last| now.duration_since(last) < PAUSE);
        if told.lines >= FIRST_LINES && recent {
            told.untold += 1;
            return;
        }
        let whose = from.map_or_else(
            || "an unknown address".into(),
            |from| SocketAddr::new(from.ip().to_canonical(), from.port()).to_string(),
        );
        let more = match told.untold {
            0 => String::new(),
            more => format!(" (and {more} others before it)"),
        };
        (self.notice)(&format!("refused a connection from {whose}: {why}{more}"));
        told.lines += 1;
        told.untold = 0;
        told.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn many_refusals_make_few_lines() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let mut refusals =
            Refusals::new(Arc::new(move |line| kept.lock().unwrap().push(line.into())));
        let start = Instant::now();
        for _ in 0..1000 {
            refusals.add(None, "garbage", start);
        }
        assert_eq!(lines.lock().unwrap().len(), 3);
        for reason in 0..1000 {
            refusals.add(None, &reason.to_string(), start);
        }
        assert!(lines.lock().unwrap().len() < 40);
        refusals.add("10.0.0.7:9".parse().ok(), "garbage", start + PAUSE);
        let last = lines.lock().unwrap().last().cloned().unwrap();
        let wanted = "refused a connection from 10.0.0.7:9: garbage (and 997 others before it)";
        assert_eq!(last, wanted);
    }
}
