//! Two hosts, made of network namespaces joined by a pair of virtual Ethernet devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::command;

/// The network that they share.
pub const NETWORK: &str = "10.213.47.0/24";
/// Their addresses there, on devices hcv0 and hcv1.
pub const ADDRESSES: [&str; 2] = ["10.213.47.1", "10.213.47.2"];
/// The same of IPv6.
pub const ADDRESSES_V6: [&str; 2] = ["fd13:213:47::1", "fd13:213:47::2"];

/// Two namespaces with names of this process's own; removed when dropped.
#[derive(Debug)]
pub struct Hosts {
    /// The namespaces' names.
    pub names: [String; 2],
    /// A program that runs a command in one of them.
    pub agent: PathBuf,
}

impl Hosts {
    /// Makes them; `None`, and said, where that can't be.
    pub fn for_test(what: &str) -> Option<Hosts> {
        if !command::is_root() || !command::exists("ip") {
            println!("SKIPPED {what}: network namespaces take root and the program ip");
            return None;
        }
        let made = Hosts::make();
        made.inspect_err(|why| println!("SKIPPED {what}: namespaces can't be made here: {why}"))
            .ok()
    }

    /// A command on the first or the second host.
    pub fn on(&self, host: usize, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.names[host]]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Gives both hosts a device with this name and the same address, which leads nowhere, as container engines do.
    ///
    /// # Errors
    /// Of the program ip.
    pub fn add_bridge(&self, device: &str, address: &str) -> Result<(), String> {
        for name in &self.names {
            let other = format!("{device}p");
            ip(&["-n", name, "link", "add", device, "type", "veth", "peer", "name", &other])?;
            ip(&["-n", name, "addr", "add", address, "dev", device])?;
            ip(&["-n", name, "link", "set", device, "up"])?;
            ip(&["-n", name, "link", "set", &other, "up"])?;
        }
        Ok(())
    }

    fn make() -> Result<Hosts, String> {
        let id = std::process::id() % 100_000;
        let hosts = Hosts {
            names: [format!("hca{id}"), format!("hcb{id}")],
            agent: command::target_dir().join(format!("rsh-agent-{id}")),
        };
        let [a, b] = &hosts.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&[
            "link", "add", "hcv0", "netns", a, "type", "veth", "peer", "name", "hcv1", "netns", b,
        ])?;
        for (i, name) in hosts.names.iter().enumerate() {
            let (device, address) = (format!("hcv{i}"), format!("{}/24", ADDRESSES[i]));
            ip(&["-n", name, "addr", "add", &address, "dev", &device])?;
            let address = format!("{}/64", ADDRESSES_V6[i]);
            ip(&["-n", name, "addr", "add", &address, "dev", &device, "nodad"])?;
            ip(&["-n", name, "link", "set", &device, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            // `ip netns exec` shows this file as /etc/hosts inside.
            let folder = Path::new("/etc/netns").join(name);
            std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
            let table =
                format!("127.0.0.1 localhost\n{} {a}\n{} {b}\n", ADDRESSES[0], ADDRESSES[1]);
            std::fs::write(folder.join("hosts"), table).map_err(|e| e.to_string())?;
        }
        hosts.wait_for_carrier()?;
        let script = "#!/bin/sh\nhost=$1\nshift\nexec ip netns exec \"$host\" unshare --uts sh -c \"hostname $host; $*\"\n";
        std::fs::write(&hosts.agent, script).map_err(|e| e.to_string())?;
        command::run(Command::new("chmod").arg("+x").arg(&hosts.agent))
            .map_err(|e| e.to_string())?;
        Ok(hosts)
    }

    /// The kernel takes up to a second to find that both ends are up; until then programs see no usable device.
    fn wait_for_carrier(&self) -> Result<(), String> {
        for (i, name) in self.names.iter().enumerate() {
            let is_up = || {
                let device = format!("hcv{i}");
                let mut show = Command::new("ip");
                show.args(["-n", name, "link", "show", "dev", &device]);
                command::capture(&mut show).is_ok_and(|text| text.contains("state UP"))
            };
            let mut patience = 100;
            while !is_up() {
                patience -= 1;
                if patience == 0 {
                    return Err(format!("the device of {name} does not come up"));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
            let _ = std::fs::remove_dir_all(Path::new("/etc/netns").join(name));
        }
        let _ = std::fs::remove_file(&self.agent);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    command::capture(Command::new("ip").args(arguments)).map(|_| ()).map_err(|e| format!("{e:#}"))
}
