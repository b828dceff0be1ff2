//! Where every rank is: a journal that each process keeps, and what a rank that waits makes of the others' journals.
//!
//! Each process writes the collectives it starts into an anonymous file: which, with how many bytes, whether it has ended. That
//! costs a handful of stores a call. Others read the file through `/proc`, so they need no answer from a process that is busy,
//! stopped or stuck, and nothing is left behind when it dies. Whoever waits long looks at the journals of the communicator's
//! other members now and then, and learns what is wrong: a process that has ended or is stopped, one that is in another
//! collective, one that has failed and will send nothing more, or one that is merely late.
//!
//! [`call`]: a call in 64 bits. [`journal`]: the file. [`reading`]: what others read in it. [`judge`]: what follows from that;
//! no clock and no files. [`watch`]: one communicator's members, looked at.

mod call;
mod journal;
mod judge;
mod reading;
#[allow(clippy::module_inception)]
mod watch;

pub use call::{CallWord, counted_bytes};
pub use journal::{BLOCKING, Ended, Journal, NEIGHBOURHOOD, NONBLOCKING, Ticket, Track};
pub use judge::{Policy, Sight, Trouble, Verdict, judge};
pub use reading::{CommunicatorRecord, JournalError, OperationRecord, OperationState, Snapshot};
pub use watch::{INTERVAL, Member, Patience, Watch};
