//! A rank that goes away in the middle of a task: when the task is given up, and in which words.

use std::time::{Duration, Instant};

use super::Engine;
use super::task::{End, Running};
use crate::Failure;
use crate::abi::Code;

/// How long a task may go on when a rank has gone: what that rank sent before may be all that is missing. And how long a
/// task that has failed waits for the meeting's words, which name the first rank that went and not the last.
const GRACE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(1);

impl Engine {
    /// The outcome of a look at a task, given what has become of the meeting.
    pub(super) fn with_meeting(
        &mut self,
        task: &Running,
        advanced: Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        match advanced {
            Ok(true) => Ok(true),
            Ok(false) => match self.meeting.failure() {
                Some(failure) if self.patience_is_over() => Err(self.named(task, failure)),
                _ => Ok(false),
            },
            Err(failure) if failure.code == Code::RemoteError => {
                let told = self.wait_for_words().unwrap_or_else(|| match failure.peer {
                    Some(peer) => {
                        let text = format!("{}: {}", self.meeting.describe(peer), failure.text);
                        Failure { text, ..failure }
                    }
                    None => failure,
                });
                Err(self.named(task, told))
            }
            Err(failure) => Err(failure),
        }
    }

    fn patience_is_over(&mut self) -> bool {
        self.noticed.get_or_insert_with(Instant::now).elapsed() > GRACE
    }

    /// What the meeting says, after waiting for it.
    fn wait_for_words(&self) -> Option<Failure> {
        let until = Instant::now() + GRACE;
        loop {
            let failure = self.meeting.failure();
            let aborted = self.shared.abort.load(std::sync::atomic::Ordering::Acquire);
            if failure.is_some() || aborted || Instant::now() >= until {
                return failure;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn named(&self, task: &Running, failure: Failure) -> Failure {
        let which = match task.end {
            End::Task(number) => {
                format!("number {}", number.wrapping_sub(self.shared.words.first))
            }
            End::Graph(_) => "in a graph".to_owned(),
        };
        Failure { text: format!("{}, {which}: {}", task.describe(), failure.text), ..failure }
    }
}
