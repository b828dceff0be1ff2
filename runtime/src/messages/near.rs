//! Programs' own messages between ranks that share one device: the lower rank's process copies, whichever way they go.
//!
//! Processes take turns on a device, and a turn costs more than most copies. So of two ranks always the same one works:
//!
//! ```text
//! higher rank   its memory's IPC handle -> lower
//! lower rank    copies from there or to there
//! higher rank   <- done, or "as usual": the message goes as between any ranks
//! ```

use hetccl_core::{MessageTag, Posted, Rank, Region, TransportError};

use super::chunks::Chunks;
use super::header::{Body, Header};
use super::{AnyMemory, DONE, Message, Phase, STAGE, copy_between, pending};

/// Set in the tags of messages from the lower rank to the higher one: the offers for both ways go one way. Programs' messages
/// have smaller numbers.
const UPWARDS: u16 = 1 << 14;

impl AnyMemory<'_> {
    /// Starts a message of `own` rank with one that uses the same device; both know that of each other.
    pub(crate) fn post_near(
        &mut self,
        (own, peer): (Rank, Rank),
        tag: MessageTag,
        region: Region,
        sends: bool,
    ) -> Result<Posted, TransportError> {
        let upwards = sends == (own < peer);
        let tag = MessageTag { step: tag.step | if upwards { UPWARDS } else { 0 }, ..tag };
        let mut message = Message::new(peer, tag, region, sends, Phase::Closing);
        let started = if own > peer { message.offer(self) } else { message.await_offer(self) };
        self.begun(message, started)
    }
}

impl Message {
    /// Tells the lower rank where this one's memory is.
    fn offer(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let body = self.export(port)?.map_or(Body::Chunks, Body::Ipc);
        self.send_header(port, body)?;
        let verdict = Region::of_bytes_mut(&mut self.reply[..1]);
        let waiting = port.inner.recv(self.peer, self.reply_tag(), verdict)?;
        self.phase = Phase::Offered(pending(waiting));
        Ok(())
    }

    /// Waits for what [`offer`](Message::offer) tells.
    fn await_offer(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let header = Region::of_bytes_mut(&mut self.header[..]);
        let waiting = port.inner.recv(self.peer, self.tag, header)?;
        self.phase = Phase::Offer(pending(waiting));
        Ok(())
    }

    /// The lower rank knows where the other's memory is: copies, if it can reach it.
    pub(super) fn take_offer(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        let header = Header::from_bytes(std::hint::black_box(&self.header));
        let fits = header.len_bytes as usize == self.region.len_bytes;
        let copy = match header.body {
            Body::Ipc(exported) if fits && header.host == port.messages.host => {
                copy_between(port.gpus, &exported, self.region, self.sends)?
            }
            _ => None,
        };
        match copy {
            Some(copy) => {
                self.phase = Phase::Copying(copy);
                Ok(())
            }
            None => {
                self.respond(port, STAGE)?;
                self.go_as_usual(port)
            }
        }
    }

    /// The higher rank hears what has become of its offer.
    pub(super) fn hear_verdict(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        if std::hint::black_box(&self.reply)[0] == DONE {
            self.phase = Phase::Closing;
            return Ok(());
        }
        self.go_as_usual(port)
    }

    /// As between any ranks. Where lengths differ, that finds it out.
    fn go_as_usual(&mut self, port: &mut AnyMemory<'_>) -> Result<(), TransportError> {
        if self.region.len_bytes < port.messages.cut.long_bytes {
            self.phase = Phase::Chunks(Chunks::whole());
            return Ok(());
        }
        if self.sends { self.announce(port) } else { self.expect(port) }
    }
}
