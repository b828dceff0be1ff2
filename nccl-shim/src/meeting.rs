//! How the ranks of a new communicator find each other, and what each of them tells the others of itself.

use std::net::{IpAddr, Ipv4Addr};

use hetccl_bootstrap::{self as bootstrap, Bootstrap, Config};

use crate::abi::{Code, UniqueId};
use crate::{Failure, settings};

fn failed(error: bootstrap::Error) -> Failure {
    let code = match &error {
        bootstrap::Error::NotAnId { .. } => Code::InvalidArgument,
        _ => Code::SystemError,
    };
    Failure::new(code, error.to_string())
}

/// IPv4 addresses of this host, the best first and the loopback one at the end.
pub(crate) fn addresses() -> Vec<Ipv4Addr> {
    let found =
        Config::from_variables(settings::variable).and_then(|config| bootstrap::addresses(&config));
    let mut all: Vec<Ipv4Addr> = found
        .unwrap_or_default()
        .into_iter()
        .filter_map(|address| match address.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
        .take(7)
        .collect();
    if !all.contains(&Ipv4Addr::LOCALHOST) {
        all.push(Ipv4Addr::LOCALHOST);
    }
    all
}

/// A new id; this process serves the ranks that come with it.
///
/// # Errors
/// A setting that can't be, no interface, no port.
pub(crate) fn create() -> Result<UniqueId, Failure> {
    let config = Config::from_variables(settings::variable).map_err(failed)?;
    let id = bootstrap::UniqueId::create(&config).map_err(failed)?;
    Ok(UniqueId { bytes: id.to_bytes() })
}

/// The secret of an id.
pub(crate) fn secret(id: &UniqueId) -> [u8; 16] {
    std::array::from_fn(|i| id.bytes[14 + i])
}

/// The ranks of a new communicator, met.
pub(crate) struct Meeting(Option<Bootstrap>);

/// Meets all ranks that have the ids.
///
/// # Errors
/// An id that is not hetccl's, no way to its maker, or ranks that do not come.
pub(crate) fn meet(ids: &[UniqueId], rank: usize, size: usize) -> Result<Meeting, Failure> {
    if size == 1 {
        return Ok(Meeting(None));
    }
    let config = Config::from_variables(settings::variable).map_err(failed)?;
    let ids = ids.iter().map(|id| bootstrap::UniqueId::from_bytes(&id.bytes));
    let ids = ids.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let group = Bootstrap::join(&ids, rank as u32, size as u32, &config).map_err(failed)?;
    Ok(Meeting(Some(group)))
}

impl Meeting {
    /// Gives `own` to all ranks and returns everybody's, in the order of ranks.
    ///
    /// # Errors
    /// A rank has gone.
    pub(crate) fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
        match &self.0 {
            None => Ok(vec![own]),
            Some(group) => group.allgather(&own).map_err(failed),
        }
    }

    /// Nobody leaves before all have everything.
    ///
    /// # Errors
    /// A rank has gone.
    pub(crate) fn part(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), |group| group.barrier().map_err(failed))
    }
}
