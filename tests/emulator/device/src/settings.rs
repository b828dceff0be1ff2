//! What the environment asks for.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::{fault, file};

/// Whose API the library speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// The CUDA driver API.
    Cuda,
    /// The HIP runtime API.
    Hip,
    /// Level Zero.
    LevelZero,
}

impl Vendor {
    /// In names of files.
    pub fn name(self) -> &'static str {
        match self {
            Vendor::Cuda => "cuda",
            Vendor::Hip => "hip",
            Vendor::LevelZero => "level-zero",
        }
    }
}

/// The environment's settings.
#[derive(Debug)]
pub struct Settings {
    /// Number of devices.
    pub devices: usize,
    /// Memory of each device.
    pub memory_bytes: usize,
    /// Wait before each stream operation.
    pub delay_us: RangeInclusive<u64>,
    /// Seed of random waits.
    pub seed: u64,
    /// Shared object with the kernels of images that are not for the host.
    pub kernels: Option<String>,
}

static VENDOR: OnceLock<Vendor> = OnceLock::new();
static STARTED_BY: OnceLock<u32> = OnceLock::new();
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Starts the emulator; later calls do nothing.
pub fn start(vendor: Vendor) -> &'static Settings {
    SETTINGS.get_or_init(|| {
        VENDOR.get_or_init(|| vendor);
        STARTED_BY.get_or_init(std::process::id);
        let settings = read(vendor);
        file::remove_leftovers();
        file::remove_at_exit();
        fault::install();
        settings
    })
}

/// Is this a child of `fork` from a process that had started the emulator? Drivers do not work there: their threads stayed
/// behind.
pub fn is_fork_child() -> bool {
    STARTED_BY.get().is_some_and(|&pid| pid != std::process::id())
}

/// The vendor given to [`start`].
pub fn vendor() -> Vendor {
    *VENDOR.get().expect("the emulator was started")
}

/// The settings, once [`start`] was called.
pub fn get() -> &'static Settings {
    SETTINGS.get().expect("the emulator was started")
}

fn read(vendor: Vendor) -> Settings {
    let devices = match vendor {
        Vendor::Cuda => "HETCCL_EMULATOR_CUDA_DEVICES",
        Vendor::Hip => "HETCCL_EMULATOR_HIP_DEVICES",
        Vendor::LevelZero => "HETCCL_EMULATOR_LEVEL_ZERO_DEVICES",
    };
    Settings {
        devices: number(devices, 1) as usize,
        memory_bytes: number("HETCCL_EMULATOR_MEMORY_BYTES", 1 << 30) as usize,
        delay_us: delay(&std::env::var("HETCCL_EMULATOR_DELAY_US").unwrap_or_default()),
        seed: number("HETCCL_EMULATOR_SEED", 1),
        kernels: std::env::var("HETCCL_EMULATOR_KERNELS").ok(),
    }
}

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.trim().parse().unwrap_or_else(|_| {
        eprintln!("hetccl emulator: {name}={text} is not a number; taking {default}");
        default
    })
}

fn delay(text: &str) -> RangeInclusive<u64> {
    let range = match text.split_once("..") {
        Some((low, high)) => low.trim().parse().ok().zip(high.trim().parse().ok()),
        None => text.trim().parse().ok().map(|fixed| (fixed, fixed)),
    };
    match range {
        Some((low, high)) if low <= high => low..=high,
        _ => {
            if !text.is_empty() {
                eprintln!(
                    "hetccl emulator: HETCCL_EMULATOR_DELAY_US={text} is neither N nor LOW..HIGH; taking 0..50"
                );
            }
            0..=50
        }
    }
}

#[cfg(test)]
mod tests {
    use super::delay;

    #[test]
    fn delays() {
        assert_eq!(delay(""), 0..=50);
        assert_eq!(delay("0"), 0..=0);
        assert_eq!(delay("2..7"), 2..=7);
        assert_eq!(delay("7..2"), 0..=50);
    }
}
