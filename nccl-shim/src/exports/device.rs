//! What is compiled into kernels by NCCL's headers: its memory layout is NCCL's own, so none of it can be had here.

use crate::entry::refuse;

/// `ncclTeam_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Team {
    ranks: i32,
    rank: i32,
    stride: i32,
}

/// The team of nobody, with the reason as last error.
fn no_team(name: &'static str) -> Team {
    refuse(name);
    Team { ranks: 0, rank: -1, stride: 0 }
}

/// The rank of nobody, with the reason as last error.
fn no_rank(name: &'static str) -> i32 {
    refuse(name);
    -1
}

crate::entries! {
    own {}
    plain {
        fn ncclTeamWorld() -> Team { no_team("ncclTeamWorld") }
        fn ncclTeamLsa() -> Team { no_team("ncclTeamLsa") }
        fn ncclTeamRail() -> Team { no_team("ncclTeamRail") }
        fn ncclTeamCft() -> Team { no_team("ncclTeamCft") }
        fn ncclTeamCftMultimem() -> Team { no_team("ncclTeamCftMultimem") }
        fn ncclTeamRankToWorld() -> i32 { no_rank("ncclTeamRankToWorld") }
        fn ncclTeamRankToLsa() -> i32 { no_rank("ncclTeamRankToLsa") }
    }
    refused {
        ncclDevCommCreate ncclDevCommDestroy ncclGetCftDeviceLeInfo ncclGetLsaDevicePointer ncclGetLsaMultimemDevicePointer
        ncclGetMultimemDeviceLeInfo ncclGetMultimemDevicePointer ncclGetPeerDeviceLeInfo ncclGetPeerDevicePointer
        ncclGinBarrierCreateRequirement ncclGinInboxA2ACreateRequirement ncclGinOutboxCreateRequirement ncclLLA2ACalcSlots
        ncclLLA2ACreateRequirement ncclLsaBarrierCreateRequirement
    }
}
