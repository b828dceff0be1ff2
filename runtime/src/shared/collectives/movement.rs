//! The collectives that move bytes.
//!
//! A message up to a chunk is written once and read in place by whoever needs it. Longer ones go in rounds of pieces, so that
//! writing and reading overlap and stay in the caches; in each round a rank writes its own pieces first and then reads, so
//! nobody waits in a circle.

use std::ptr::copy_nonoverlapping as copy;

use super::{Lane, both};
use crate::shared::lane::{LaneError, Message, Readers, part_of};
use crate::shared::layout::INLINE_BYTES;
use crate::shared::short::copy_short;

/// A run of bytes that is sent.
pub(super) type From = (*const u8, usize);
/// A run of bytes that is received.
pub(super) type Into = (*mut u8, usize);

#[both]
impl Lane {
    /// Nobody leaves before everybody has come.
    ///
    /// # Errors
    /// A process that has ended.
    pub async fn barrier(&mut self) -> Result<(), LaneError> {
        // SAFETY: nothing is written.
        unsafe { self.send(0, |_| ()).await }?;
        for peer in self.others() {
            self.any_message(peer).await?;
        }
        self.finish(true)
    }

    /// The root's `len` bytes reach everybody.
    ///
    /// # Errors
    /// The root sends more than there is room for; a process that has ended.
    ///
    /// # Safety
    /// `buffer` is `len` bytes that nobody else uses; the root's are only read.
    #[inline]
    pub async unsafe fn bcast(
        &mut self,
        buffer: *mut u8,
        len: usize,
        root: usize,
    ) -> Result<(), LaneError> {
        let mut small = len <= INLINE_BYTES;
        // SAFETY: the caller's promise.
        unsafe {
            if self.rank() == root {
                if len <= self.chunk_bytes() {
                    self.send(len, |into| copy_short(buffer, into, len)).await?;
                } else {
                    self.send_stream((buffer, len), Readers::All).await?;
                }
            } else {
                let (message, sent) = self.any_message(root).await?;
                small &= sent <= INLINE_BYTES;
                match message {
                    _ if sent > len => self.dismiss(root, message, sent, len),
                    Message::Whole(from) => copy_short(from, buffer, sent),
                    _ => self.receive_stream(root, (buffer, sent)).await?,
                }
            }
        }
        self.finish(small)
    }

    /// The root gets everybody's block: `into(rank)` says where from each, and is asked at the root only. `own` is this
    /// rank's block; at the root, where it is null, it is in its place already.
    ///
    /// # Errors
    /// Blocks of other lengths than the root expects; a process that has ended.
    ///
    /// # Safety
    /// The runs are valid and the root's do not overlap.
    pub async unsafe fn gather(
        &mut self,
        own: (*const u8, usize),
        into: impl Fn(usize) -> (*mut u8, usize),
        root: usize,
        uniform: bool,
    ) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.rank() != root {
                // What the others send is known only where it is the same.
                let small = uniform && own.1 <= INLINE_BYTES;
                self.send_any(own, root).await?;
                return self.finish(small);
            }
            self.keep_own(own, &into);
            let mut streams = Vec::new();
            let mut small = true;
            for peer in self.others() {
                let (at, room) = into(peer);
                small &= room <= INLINE_BYTES;
                match self.message_up_to(peer, room).await? {
                    (Message::Whole(from), len) => copy_short(from, at, len),
                    (Message::InPieces, len) => streams.push((peer, (at, len))),
                    (Message::Wrong, _) => {}
                }
            }
            self.receive_streams(&streams).await?;
            self.finish(small)
        }
    }

    /// Everybody gets everybody's block; see [`gather`](Lane::gather).
    ///
    /// # Errors
    /// As for [`gather`](Lane::gather).
    ///
    /// # Safety
    /// As for [`gather`](Lane::gather).
    pub async unsafe fn allgather(
        &mut self,
        own: (*const u8, usize),
        into: impl Fn(usize) -> (*mut u8, usize),
    ) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut small = own.1 <= INLINE_BYTES;
            // In place, the block to send is where the result will have it.
            let sent = if own.0.is_null() { in_place(into(self.rank())) } else { own };
            let piece = self.piece_bytes(1);
            let streams_out = sent.1 > self.chunk_bytes();
            if streams_out {
                self.announce(sent.1, 0, std::iter::once(sent.1), piece, Readers::All).await?;
            } else {
                small &= sent.1 <= INLINE_BYTES;
                self.send(sent.1, |to| copy_short(sent.0, to, sent.1)).await?;
            }
            self.keep_own(own, &into);
            let mut streams = Vec::new();
            for peer in self.others() {
                let (at, room) = into(peer);
                small &= room <= INLINE_BYTES;
                match self.message_up_to(peer, room).await? {
                    (Message::Whole(from), len) => copy_short(from, at, len),
                    (Message::InPieces, len) => streams.push((peer, (at, len))),
                    (Message::Wrong, _) => {}
                }
            }
            let rounds_out = if streams_out { sent.1.div_ceil(piece) } else { 0 };
            let rounds_in = streams.iter().map(|(_, run)| run.1.div_ceil(piece)).max().unwrap_or(0);
            for round in 0..rounds_out.max(rounds_in) {
                if round < rounds_out {
                    self.put_part(sent, round, piece).await?;
                }
                for &(peer, run) in &streams {
                    self.take_part(peer, run, round, piece).await?;
                }
            }
            self.finish(small)
        }
    }

    /// Everybody gets its block of the root's: `from(rank)` says which for each, and is asked at the root only. `own` is
    /// where this rank's block goes; at the root, where it is null, it stays where it is.
    ///
    /// # Errors
    /// Blocks of other lengths than the root sends; a process that has ended.
    ///
    /// # Safety
    /// The runs are valid and do not overlap `own`.
    pub async unsafe fn scatter(
        &mut self,
        own: (*mut u8, usize),
        from: impl Fn(usize) -> (*const u8, usize),
        root: usize,
        uniform: bool,
    ) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.rank() == root {
                let small = self.send_blocks(&from, uniform).await?;
                let (at, len) = from(root);
                if !own.0.is_null() && len > 0 {
                    copy(at, own.0, len.min(own.1));
                }
                return self.finish(small);
            }
            let (small, stream) = self.open_blocks(root, own, uniform).await?;
            if let Some(stream) = stream {
                for round in 0..stream.rounds() {
                    self.take_block(&stream, round).await?;
                }
            }
            self.finish(small)
        }
    }

    /// Everybody sends a block to everybody: `from(rank)` is what goes there, `into(rank)` where what comes from there goes.
    /// In place (`from` names the same runs as `into`), blocks are replaced. `uniform`: all blocks of all ranks have the same
    /// length.
    ///
    /// # Errors
    /// Blocks of other lengths than expected; a process that has ended.
    ///
    /// # Safety
    /// The runs are valid; apart from the in-place form they do not overlap.
    pub async unsafe fn alltoall(
        &mut self,
        from: impl Fn(usize) -> (*const u8, usize),
        into: impl Fn(usize) -> (*mut u8, usize),
        uniform: bool,
    ) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe {
            let parts = self.ranks() - 1;
            let out = self.outgoing(&from, uniform);
            let mut small = if out.whole { self.send_blocks(&from, uniform).await? } else { false };
            if !out.whole {
                self.announce_blocks(&from, &out).await?;
            }
            let me = self.rank();
            let ((own_from, len), (own_into, room)) = (from(me), into(me));
            if len > 0 && own_from != own_into.cast_const() {
                copy(own_from, own_into, len.min(room));
            }
            let mut streams = Vec::new();
            for peer in self.others() {
                let (peer_small, stream) = self.open_blocks(peer, into(peer), uniform).await?;
                small &= peer_small;
                streams.extend(stream);
            }
            let rounds_in = streams.iter().map(Blocks::rounds).max().unwrap_or(0);
            let rounds_out = if out.whole { 0 } else { out.longest.div_ceil(out.piece) };
            for round in 0..rounds_out.max(rounds_in) {
                if round < rounds_out {
                    for k in 1..=parts {
                        self.put_part(from((me + k) % (parts + 1)), round, out.piece).await?;
                    }
                }
                for stream in &streams {
                    if round < stream.rounds() {
                        self.take_block(stream, round).await?;
                    }
                }
            }
            self.finish(small)
        }
    }

    // ---- pieces of them ----

    /// The other ranks, from the next one on.
    #[inline]
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let (rank, ranks) = (self.rank(), self.ranks());
        (1..ranks).map(move |k| if rank + k < ranks { rank + k } else { rank + k - ranks })
    }

    /// # Safety
    /// The runs are valid.
    unsafe fn keep_own(&self, own: From, into: &impl Fn(usize) -> Into) {
        let (at, room) = into(self.rank());
        if !own.0.is_null() && own.1.min(room) > 0 {
            // SAFETY: the caller's promise.
            unsafe { copy(own.0, at, own.1.min(room)) };
        }
    }

    /// A message that may be shorter than `room`.
    #[inline]
    async fn message_up_to(
        &mut self,
        peer: usize,
        room: usize,
    ) -> Result<(Message, usize), LaneError> {
        let (message, len) = self.any_message(peer).await?;
        if len > room {
            self.dismiss(peer, message, len, room);
            return Ok((Message::Wrong, len));
        }
        Ok((message, len))
    }

    /// # Safety
    /// The run is valid.
    #[inline]
    async unsafe fn send_any(&mut self, run: From, reader: usize) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe {
            if run.1 <= self.chunk_bytes() {
                self.send(run.1, |into| copy_short(run.0, into, run.1)).await
            } else {
                self.send_stream(run, Readers::One(reader)).await
            }
        }
    }

    /// # Safety
    /// The run is valid.
    #[inline(never)]
    async unsafe fn send_stream(&mut self, run: From, readers: Readers) -> Result<(), LaneError> {
        let piece = self.piece_bytes(1);
        self.announce(run.1, 0, std::iter::once(run.1), piece, readers).await?;
        for round in 0..run.1.div_ceil(piece) {
            // SAFETY: the caller's promise.
            unsafe { self.put_part(run, round, piece).await }?;
        }
        Ok(())
    }

    /// # Safety
    /// The run is valid, and as long as the message.
    #[inline(never)]
    async unsafe fn receive_stream(&mut self, peer: usize, run: Into) -> Result<(), LaneError> {
        // SAFETY: the caller's promise.
        unsafe { self.receive_streams(&[(peer, run)]).await }
    }

    /// # Safety
    /// The runs are valid, and as long as the messages.
    async unsafe fn receive_streams(&mut self, streams: &[(usize, Into)]) -> Result<(), LaneError> {
        let piece = self.piece_bytes(1);
        let rounds = streams.iter().map(|(_, run)| run.1.div_ceil(piece)).max().unwrap_or(0);
        for round in 0..rounds {
            for &(peer, run) in streams {
                // SAFETY: the caller's promise.
                unsafe { self.take_part(peer, run, round, piece).await }?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The run is valid.
    pub(super) async unsafe fn put_part(
        &mut self,
        run: From,
        round: usize,
        piece: usize,
    ) -> Result<(), LaneError> {
        let len = part_of(run.1, round, piece);
        // SAFETY: the caller's promise.
        unsafe { self.put(len, |into| copy(run.0.add(round * piece), into, len)).await }
    }

    /// # Safety
    /// The run is valid.
    async unsafe fn take_part(
        &mut self,
        peer: usize,
        run: Into,
        round: usize,
        piece: usize,
    ) -> Result<(), LaneError> {
        let len = part_of(run.1, round, piece);
        if len > 0 {
            let from = self.take(peer, len).await?;
            // SAFETY: the piece is there, and the caller's promise.
            unsafe { copy(from, run.0.add(round * piece), len) };
            self.acknowledge(peer);
        }
        Ok(())
    }

    /// How this rank's blocks for the others travel.
    fn outgoing(&self, from: &impl Fn(usize) -> From, uniform: bool) -> Outgoing {
        let (mut total, mut longest) = (0, 0);
        for peer in self.others() {
            let len = from(peer).1;
            total += len;
            longest = longest.max(len);
        }
        let table = self.table_bytes(uniform);
        Outgoing {
            total: total + table,
            longest,
            table,
            piece: self.piece_bytes(self.ranks() - 1),
            whole: total + table <= self.chunk_bytes(),
        }
    }

    /// Bytes of the lengths that go before blocks of any length. With two ranks the message's own length says it.
    fn table_bytes(&self, uniform: bool) -> usize {
        if uniform || self.ranks() == 2 { 0 } else { self.ranks() * size_of::<u64>() }
    }

    /// Sends a block to each other rank, from the next one on. Whether that was small.
    ///
    /// # Safety
    /// The runs are valid.
    async unsafe fn send_blocks(
        &mut self,
        from: &impl Fn(usize) -> From,
        uniform: bool,
    ) -> Result<bool, LaneError> {
        let out = self.outgoing(from, uniform);
        let (others, ranks) = (self.others(), self.ranks());
        // SAFETY: the caller's promise; `outgoing` has added the lengths up.
        unsafe {
            if out.whole {
                self.send(out.total, |mut into| {
                    if out.table > 0 {
                        into = write_table(into, ranks, from);
                    }
                    for peer in others {
                        let (at, len) = from(peer);
                        copy_short(at, into, len);
                        into = into.add(len);
                    }
                })
                .await?;
                return Ok(out.total <= INLINE_BYTES);
            }
            self.announce_blocks(from, &out).await?;
            for round in 0..out.longest.div_ceil(out.piece) {
                for peer in others.clone() {
                    self.put_part(from(peer), round, out.piece).await?;
                }
            }
            Ok(false)
        }
    }

    /// # Safety
    /// The runs are valid.
    async unsafe fn announce_blocks(
        &mut self,
        from: &impl Fn(usize) -> From,
        out: &Outgoing,
    ) -> Result<(), LaneError> {
        let (others, ranks) = (self.others(), self.ranks());
        let parts = others.map(|peer| from(peer).1);
        self.announce(out.total, out.table, parts, out.piece, Readers::All).await?;
        // SAFETY: the table has a word per rank.
        unsafe {
            self.put(out.table, |into| {
                write_table(into, ranks, from);
            })
            .await
        }
    }

    /// Looks at the blocks that `peer` sends, and takes this rank's if it is there already. Whether that was small, and what
    /// is still to come.
    ///
    /// # Safety
    /// The run is valid.
    async unsafe fn open_blocks(
        &mut self,
        peer: usize,
        run: Into,
        uniform: bool,
    ) -> Result<(bool, Option<Blocks>), LaneError> {
        let ranks = self.ranks();
        let table = self.table_bytes(uniform);
        let (message, total) = self.any_message(peer).await?;
        let small = total <= INLINE_BYTES;
        let mine = (self.rank() + ranks - peer) % ranks - 1;
        let other = |k: usize| (peer + 1 + k) % ranks;
        // SAFETY: a whole message has its table and all its blocks; the caller's promise for the run.
        unsafe {
            match message {
                Message::Whole(at) => {
                    let lens = |k: usize| match table {
                        0 => total / (ranks - 1),
                        _ => at.cast::<u64>().add(other(k)).read_unaligned() as usize,
                    };
                    let len = lens(mine);
                    if len > run.1 {
                        self.dismiss(peer, message, len, run.1);
                    } else {
                        let before: usize = match table {
                            0 => mine * len,
                            _ => table + (0..mine).map(lens).sum::<usize>(),
                        };
                        copy_short(at.add(before), run.0, len);
                    }
                    Ok((small, None))
                }
                _ => {
                    let lens: Vec<usize> = if table > 0 {
                        let at = self.take(peer, table).await?.cast::<u64>();
                        (0..ranks - 1).map(|k| at.add(other(k)).read_unaligned() as usize).collect()
                    } else {
                        vec![total / (ranks - 1); ranks - 1]
                    };
                    if lens[mine] > run.1 {
                        self.dismiss(peer, message, lens[mine], run.1);
                        return Ok((false, None));
                    }
                    let piece = self.piece_bytes(ranks - 1);
                    Ok((false, Some(Blocks { peer, lens, mine, into: run.0, piece })))
                }
            }
        }
    }

    /// # Safety
    /// The stream's run is valid.
    async unsafe fn take_block(&mut self, stream: &Blocks, round: usize) -> Result<(), LaneError> {
        for (k, &len) in stream.lens.iter().enumerate() {
            let len = part_of(len, round, stream.piece);
            if k == stream.mine && len > 0 {
                let from = self.take(stream.peer, len).await?;
                // SAFETY: the piece is there, and the caller's promise.
                unsafe { copy(from, stream.into.add(round * stream.piece), len) };
            } else {
                self.skip(stream.peer, len);
            }
        }
        self.acknowledge(stream.peer);
        Ok(())
    }
}

/// Blocks for the other ranks as one message.
struct Outgoing {
    total: usize,
    longest: usize,
    table: usize,
    piece: usize,
    whole: bool,
}

/// A message with blocks for several ranks, one of them this one's.
struct Blocks {
    peer: usize,
    lens: Vec<usize>,
    mine: usize,
    into: *mut u8,
    piece: usize,
}

impl Blocks {
    /// All rounds of the message: those without a piece for this rank are acknowledged too.
    fn rounds(&self) -> usize {
        self.lens.iter().max().map_or(0, |longest| longest.div_ceil(self.piece))
    }
}

/// # Safety
/// `into` has room for a word per rank.
unsafe fn write_table(into: *mut u8, ranks: usize, from: &impl Fn(usize) -> From) -> *mut u8 {
    for rank in 0..ranks {
        // SAFETY: the caller's promise.
        unsafe { into.cast::<u64>().add(rank).write_unaligned(from(rank).1 as u64) };
    }
    // SAFETY: as above.
    unsafe { into.add(ranks * size_of::<u64>()) }
}

fn in_place(run: Into) -> From {
    (run.0.cast_const(), run.1)
}
