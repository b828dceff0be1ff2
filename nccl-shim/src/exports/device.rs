//! What is compiled into kernels by NCCL's headers: its memory layout is NCCL's own, so none of it can be had for hetccl's
//! communicators, but for teams, which are numbers. Those of the vendor's library have all of it.

use std::ffi::{c_int, c_void};

use crate::abi::CommHandle;
use crate::api::team::{self, NO_TEAM, Team};
use crate::entry::refuse;

const DEVICE: &str = "kernels that communicate are compiled for NCCL's own memory layout, which hetccl's communicators do not \
    have: use the collectives of the host, or ranks of one vendor with a GPU each and HETCCL_DELEGATE=1";

/// The team of nobody, with the reason as last error.
fn no_team(name: &'static str) -> Team {
    refuse(name, DEVICE);
    NO_TEAM
}

/// The rank of nobody, with the reason as last error.
fn no_rank(name: &'static str) -> i32 {
    refuse(name, DEVICE);
    -1
}

/// The vendor's answer for its communicators, hetccl's for others: `$own`, a `Result`, or `$none` with a text.
macro_rules! answer {
    ($name:ident ($comm:ident $(, $arg:ident: $type:ty)*) -> $result:ty, $none:expr, $own:expr) => {{
        let handle = $comm;
        let vendor = crate::delegate::vendor_comm(handle);
        let answer = vendor.and_then(
            |$comm| crate::entries! { @vendors $name ($comm: CommHandle $(, $arg: $type)*) -> $result },
        );
        answer.unwrap_or_else(|| {
            let mut own = $none;
            crate::entry::enter(stringify!($name), || {
                own = $own(handle)?;
                Ok(())
            });
            own
        })
    }};
}

/// The vendor's answer for its communicators, `$none` for others.
macro_rules! ask {
    ($name:ident ($comm:ident $(, $arg:ident: $type:ty)*) -> $result:ty, $none:expr) => {{
        let vendor = crate::delegate::vendor_comm($comm);
        let answer = vendor.and_then(
            |$comm| crate::entries! { @vendors $name ($comm: CommHandle $(, $arg: $type)*) -> $result },
        );
        answer.unwrap_or_else(|| $none(stringify!($name)))
    }};
}

crate::entries! {
    own {}
    both {}
    handed {}
    refused {
        fn ncclDevCommCreate(comm: CommHandle, wanted: *const c_void, made: *mut c_void) by comm = DEVICE;
        fn ncclDevCommDestroy(comm: CommHandle, made: *const c_void) by comm = DEVICE;
        fn ncclGinBarrierCreateRequirement(comm: CommHandle, team: Team, barriers: c_int, handle: *mut c_void, signal: u32, wanted: *mut c_void) by comm = DEVICE;
    }
    without {
        fn ncclGetLsaDevicePointer(window: *mut c_void, offset: usize, rank: c_int, pointer: *mut *mut c_void) = DEVICE;
        fn ncclGetPeerDevicePointer(window: *mut c_void, offset: usize, peer: c_int, pointer: *mut *mut c_void) = DEVICE;
        fn ncclGetLsaMultimemDevicePointer(window: *mut c_void, offset: usize, pointer: *mut *mut c_void) = DEVICE;
        fn ncclGetMultimemDevicePointer(window: *mut c_void, offset: usize, memory: *mut c_void, pointer: *mut *mut c_void) = DEVICE;
        fn ncclGetMultimemDeviceLeInfo(window: *mut c_void, offset: usize, id: *mut u32, id_offset: *mut usize) = DEVICE;
        fn ncclGetCftDeviceLeInfo(window: *mut c_void, offset: usize, peer: c_int, team: Team, id: *mut u32, id_offset: *mut usize) = DEVICE;
        fn ncclGetPeerDeviceLeInfo(window: *mut c_void, offset: usize, peer: c_int, id: *mut u32, id_offset: *mut usize) = DEVICE;
        fn ncclLsaBarrierCreateRequirement(team: Team, barriers: c_int, handle: *mut c_void, wanted: *mut c_void) = DEVICE;
        fn ncclLLA2ACreateRequirement(blocks: c_int, slots: c_int, handle: *mut c_void, wanted: *mut c_void) = DEVICE;
        fn ncclGinOutboxCreateRequirement(blocks: c_int, log2_bytes: c_int, handle: *mut c_void, wanted: *mut c_void) = DEVICE;
        fn ncclGinInboxA2ACreateRequirement(peers: Team, blocks: c_int, log2_bytes: c_int, handle: *mut c_void, wanted: *mut c_void) = DEVICE;
    }
    plain {}
    asked {
        fn ncclLLA2ACalcSlots(most: c_int, most_bytes: c_int) -> c_int {
            let answer = crate::entries! { @vendors ncclLLA2ACalcSlots (most: c_int, most_bytes: c_int) -> c_int };
            answer.unwrap_or_else(|| no_rank("ncclLLA2ACalcSlots"))
        }
        fn ncclTeamCft(comm: CommHandle, mode: c_int) -> Team { ask!(ncclTeamCft(comm, mode: c_int) -> Team, no_team) }
        fn ncclTeamCftMultimem(comm: CommHandle) -> Team { ask!(ncclTeamCftMultimem(comm) -> Team, no_team) }
    }
    answered {
        fn ncclTeamWorld(comm: CommHandle) -> Team {
            answer!(ncclTeamWorld(comm) -> Team, NO_TEAM, team::world)
        }
        fn ncclTeamLsa(comm: CommHandle) -> Team {
            answer!(ncclTeamLsa(comm) -> Team, NO_TEAM, team::alone)
        }
        fn ncclTeamRail(comm: CommHandle) -> Team {
            answer!(ncclTeamRail(comm) -> Team, NO_TEAM, team::world)
        }
        fn ncclTeamRankToWorld(comm: CommHandle, team: Team, rank: c_int) -> i32 {
            answer!(ncclTeamRankToWorld(comm, team: Team, rank: c_int) -> i32, -1, |comm| team::to_world(comm, team, rank))
        }
        fn ncclTeamRankToLsa(comm: CommHandle, team: Team, rank: c_int) -> i32 {
            answer!(ncclTeamRankToLsa(comm, team: Team, rank: c_int) -> i32, -1, |comm| team::to_near(comm, team, rank))
        }
    }
}
