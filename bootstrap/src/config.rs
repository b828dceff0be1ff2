//! Settings, from NCCL's environment variables and from hetccl's own.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};

/// How a group is made: which networks, how long to wait.
#[derive(Clone)]
pub struct Config {
    /// The network interfaces that may be used.
    pub interfaces: Filter,
    /// One family of addresses only.
    pub family: Option<Family>,
    /// `host:port` of the root, for programs that have no other way to hand an id around.
    pub comm_id: Option<String>,
    /// How long a rank waits for the others, in a join and in every other call.
    pub timeout: Duration,
    /// How long a rank tries to connect to another that must be there.
    pub connect_timeout: Duration,
    /// A neighbour in the tree that says nothing for so long, not even that it is there, has failed; `None`: never.
    pub peer_timeout: Option<Duration>,
    /// After this long in a join, the ranks that have not come are told to `notice`.
    pub notice_after: Duration,
    /// Takes one line for the user.
    pub notice: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Which interfaces: NCCL_SOCKET_IFNAME.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Prefixes of names, or names; none: every interface.
    names: Vec<String>,
    exclude: bool,
    exact: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            interfaces: Filter::default(),
            family: None,
            comm_id: None,
            timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(20),
            peer_timeout: Some(Duration::from_secs(60)),
            notice_after: Duration::from_secs(15),
            notice: Arc::new(|line| eprintln!("hetccl: {line}")),
        }
    }
}

impl Config {
    /// What the environment says: NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY, NCCL_COMM_ID, and in seconds HETCCL_INIT_TIMEOUT
    /// (600) and HETCCL_PEER_TIMEOUT (60; 0: never).
    ///
    /// # Errors
    /// A value that can't be used.
    pub fn from_environment() -> Result<Config> {
        Config::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables, such as a configuration file.
    ///
    /// # Errors
    /// A value that can't be used.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config> {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        let mut config = Config::default();
        if let Some(list) = value("NCCL_SOCKET_IFNAME") {
            config.interfaces = Filter::parse(&list);
        }
        if let Some(family) = value("NCCL_SOCKET_FAMILY") {
            config.family = Some(match family.as_str() {
                "AF_INET" => Family::V4,
                "AF_INET6" => Family::V6,
                _ => {
                    let reason = "must be AF_INET or AF_INET6".into();
                    return Err(Error::Setting {
                        name: "NCCL_SOCKET_FAMILY",
                        value: family,
                        reason,
                    });
                }
            });
        }
        config.comm_id = value("NCCL_COMM_ID");
        if let Some(text) = value("HETCCL_INIT_TIMEOUT") {
            config.timeout = seconds("HETCCL_INIT_TIMEOUT", text, 1)?;
        }
        if let Some(text) = value("HETCCL_PEER_TIMEOUT") {
            let limit = seconds("HETCCL_PEER_TIMEOUT", text, 0)?;
            config.peer_timeout = (!limit.is_zero()).then_some(limit);
        }
        Ok(config)
    }
}

/// A number of seconds, at least `least`.
fn seconds(name: &'static str, value: String, least: u32) -> Result<Duration> {
    match value.parse::<u32>() {
        Ok(number) if number >= least => Ok(Duration::from_secs(number.into())),
        _ => {
            let reason = format!("must be a number of seconds, {least} or more");
            Err(Error::Setting { name, value, reason })
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("interfaces", &self.interfaces)
            .field("family", &self.family)
            .field("comm_id", &self.comm_id)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Filter {
    /// A comma-separated list of prefixes; `=` before it: whole names; `^` before it: all but those.
    pub fn parse(list: &str) -> Filter {
        let (exclude, rest) = list.strip_prefix('^').map_or((false, list), |rest| (true, rest));
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let names = rest.split(',').map(str::trim).filter(|name| !name.is_empty());
        Filter { names: names.map(str::to_owned).collect(), exclude, exact }
    }

    /// Whether the filter names interfaces that must be used.
    pub(crate) fn names_interfaces(&self) -> bool {
        !self.names.is_empty() && !self.exclude
    }

    /// The place of an interface in the list, `None` when it may not be used.
    pub(crate) fn place(&self, interface: &str) -> Option<usize> {
        let hit = self.names.iter().position(|name| match self.exact {
            true => interface == name,
            false => interface.starts_with(name.as_str()),
        });
        match (self.names.is_empty(), self.exclude, hit) {
            (true, ..) | (_, true, None) => Some(0),
            (_, true, Some(_)) => None,
            (_, false, place) => place,
        }
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (not, exact) = (if self.exclude { "^" } else { "" }, if self.exact { "=" } else { "" });
        write!(f, "NCCL_SOCKET_IFNAME={not}{exact}{}", self.names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_lists_are_nccls() {
        let usable = |list: &str, name: &str| Filter::parse(list).place(name).is_some();
        assert!(usable("", "eth0"));
        assert!(usable("eth", "eth0") && usable("eth", "eth1") && !usable("eth", "ib0"));
        assert!(usable("=eth0", "eth0") && !usable("=eth0", "eth01") && !usable("=eth", "eth0"));
        assert!(!usable("^docker,lo", "docker0") && !usable("^docker,lo", "lo"));
        assert!(usable("^docker,lo", "eth0"));
        assert!(!usable("^=lo", "lo") && usable("^=lo", "lo1"));
        assert_eq!(Filter::parse("ib,eth").place("eth0"), Some(1));
    }

    #[test]
    fn variables_are_read_and_refused() {
        let with = |name: &'static str, value: &'static str| {
            Config::from_variables(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(with("NCCL_SOCKET_FAMILY", "AF_INET6").unwrap().family, Some(Family::V6));
        assert_eq!(with("HETCCL_INIT_TIMEOUT", "7").unwrap().timeout, Duration::from_secs(7));
        assert_eq!(
            with("HETCCL_PEER_TIMEOUT", "3").unwrap().peer_timeout,
            Some(Duration::from_secs(3))
        );
        assert_eq!(with("HETCCL_PEER_TIMEOUT", "0").unwrap().peer_timeout, None);
        for (name, value) in [
            ("NCCL_SOCKET_FAMILY", "IPv4"),
            ("HETCCL_INIT_TIMEOUT", "0"),
            ("HETCCL_PEER_TIMEOUT", "soon"),
        ] {
            let error = with(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        assert_eq!(with("NCCL_COMM_ID", "").unwrap().comm_id, None);
    }
}
