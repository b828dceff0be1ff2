//! Whether a NIC of this host can read and write a GPU's memory, as the kernel says it in `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use hetccl_gpu::Vendor;

/// DMA_BUF_IOCTL and its use by RDMA came with this version of Linux.
const DMA_BUF_LINUX: (u32, u32) = (5, 12);

/// A host's RDMA devices.
#[derive(Clone, Debug)]
pub struct Rdma {
    proc: PathBuf,
    sys: PathBuf,
}

impl Rdma {
    /// Those of this host.
    pub fn here() -> Rdma {
        Rdma::at(Path::new("/proc"), Path::new("/sys"))
    }

    /// Those of the host whose kernel's files are in two folders.
    pub fn at(proc: &Path, sys: &Path) -> Rdma {
        Rdma { proc: proc.into(), sys: sys.into() }
    }

    /// The devices' names, in order.
    pub fn devices(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.sys.join("class/infiniband")) else {
            return Vec::new();
        };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What lets a NIC reach the memory of a vendor's devices.
    ///
    /// # Errors
    /// Why none can.
    pub fn reaches(&self, vendor: Vendor) -> Result<&'static str, String> {
        if self.devices().is_empty() {
            return Err("there is no RDMA device in /sys/class/infiniband".into());
        }
        let module = vendor.peer_memory_module();
        let loaded = |name: &&str| self.sys.join("module").join(name).exists();
        match module.filter(loaded) {
            Some(module) => Ok(module),
            None if self.linux() >= DMA_BUF_LINUX => Ok("dma-buf"),
            None => Err(match module {
                Some(module) => format!("neither {module} nor dma-buf is in the kernel"),
                None => "dma-buf is not in the kernel".into(),
            }),
        }
    }

    fn linux(&self) -> (u32, u32) {
        let release =
            fs::read_to_string(self.proc.join("sys/kernel/osrelease")).unwrap_or_default();
        linux_version(&release)
    }
}

/// The first two numbers of a release of Linux; 0 where there is none.
pub fn linux_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The largest region of a PCI device, by its file `resource`: lines of start, end and flags.
pub fn largest_region_bytes(resource: &str) -> Option<u64> {
    let sizes = resource.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let (start, end) = (number(words.next()?)?, number(words.next()?)?);
        end.checked_sub(start).filter(|&last| last > 0)?.checked_add(1)
    });
    sizes.max()
}
