//! Teams of ranks, which are numbers and need nothing of NCCL's device interface.
#![allow(missing_docs, clippy::missing_errors_doc)]

use std::ffi::c_int;

use crate::Failure;
use crate::abi::CommHandle;
use crate::comm;

/// `ncclTeam_t`: every `stride`-th rank around the caller's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// Its ranks.
    pub ranks: i32,
    /// The caller's number in it.
    pub rank: i32,
    /// From one of its ranks to the next.
    pub stride: i32,
}

/// The team of nobody.
pub const NO_TEAM: Team = Team { ranks: 0, rank: -1, stride: 0 };

/// All ranks.
pub fn world(handle: CommHandle) -> Result<Team, Failure> {
    let comm = comm::find(handle)?;
    let live = comm.live()?;
    Ok(Team { ranks: live.size as i32, rank: live.rank as i32, stride: 1 })
}

/// The ranks whose memory the caller's kernels reach: itself.
pub fn alone(handle: CommHandle) -> Result<Team, Failure> {
    comm::find(handle)?.live()?;
    Ok(Team { ranks: 1, rank: 0, stride: 1 })
}

/// The number among all ranks of a team's rank.
pub fn to_world(handle: CommHandle, team: Team, rank: c_int) -> Result<i32, Failure> {
    let all = world(handle)?;
    member(all, team, rank).ok_or_else(|| {
        Failure::argument(format!("{rank} is not a rank of the team, which has {}", team.ranks))
    })
}

fn member(all: Team, team: Team, rank: c_int) -> Option<i32> {
    let steps = rank.checked_sub(team.rank)?.checked_mul(team.stride)?;
    let number = all.rank.checked_add(steps)?;
    ((0..team.ranks).contains(&rank) && (0..all.ranks).contains(&number)).then_some(number)
}

/// The number among the ranks whose memory the caller's kernels reach.
pub fn to_near(handle: CommHandle, team: Team, rank: c_int) -> Result<i32, Failure> {
    if to_world(handle, team, rank)? == world(handle)?.rank {
        return Ok(0);
    }
    Err(Failure::argument(
        "kernels of this rank do not reach that rank's memory: teams of that kind have one rank here",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_team_are_counted_from_the_callers() {
        let all = Team { ranks: 8, rank: 5, stride: 1 };
        let odd = Team { ranks: 4, rank: 2, stride: 2 };
        assert_eq!(member(all, all, 7), Some(7));
        assert_eq!(
            (0..4).map(|rank| member(all, odd, rank)).collect::<Option<Vec<_>>>(),
            Some(vec![1, 3, 5, 7])
        );
        assert_eq!(member(all, odd, 4), None);
        assert_eq!(
            member(all, Team { ranks: i32::MAX, stride: i32::MAX, ..odd }, i32::MAX - 1),
            None
        );
    }
}
