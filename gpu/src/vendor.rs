//! The vendors. A new one is a folder beside this file that has a [`Driver`] and a [`Description`], its `mod` line in
//! `lib.rs`, and its line in the table below; its memory types are `hetccl_core`'s.

use hetccl_core::{MemoryType, topology};

use crate::driver::Driver;
use crate::error::Error;

/// What a vendor's folder says of itself.
pub(crate) struct Description {
    /// The word for reports.
    pub(crate) name: &'static str,
    /// Whose devices these are to schedules.
    pub(crate) maker: topology::Vendor,
    /// Memory of a device.
    pub(crate) memory: MemoryType,
    /// Memory that host and device share.
    pub(crate) managed: MemoryType,
    /// The kernel module that lets NICs reach device memory, where that is not left to dma-buf.
    pub(crate) peer_memory_module: Option<&'static str>,
    /// Loads and initialises the driver.
    pub(crate) open: fn() -> Result<Box<dyn Driver>, Error>,
}

macro_rules! vendors {
    ($($(#[$doc:meta])* $vendor:ident = $number:literal, $description:path;)*) => {
        /// Whose GPU. The numbers travel between processes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Vendor {
            $($(#[$doc])* $vendor = $number,)*
        }

        impl Vendor {
            /// All of them.
            pub const ALL: &'static [Vendor] = &[$(Vendor::$vendor,)*];

            const fn description(self) -> &'static Description {
                match self {
                    $(Vendor::$vendor => &$description,)*
                }
            }
        }
    };
}

vendors! {
    /// NVIDIA, through CUDA's driver interface.
    Cuda = 1, crate::cuda::VENDOR;
    /// AMD, through HIP.
    Rocm = 2, crate::hip::VENDOR;
    /// Intel, through Level Zero.
    LevelZero = 3, crate::level_zero::VENDOR;
}

impl Vendor {
    /// The word for reports.
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// Whose devices these are to schedules.
    pub const fn maker(self) -> topology::Vendor {
        self.description().maker
    }

    /// Memory of the vendor's devices.
    pub const fn memory(self) -> MemoryType {
        self.description().memory
    }

    /// The kernel module that lets NICs reach device memory, where that is not left to dma-buf.
    pub const fn peer_memory_module(self) -> Option<&'static str> {
        self.description().peer_memory_module
    }

    /// The vendor whose memory this is; `None` for host memory.
    pub fn of(memory: MemoryType) -> Option<Vendor> {
        Vendor::ALL.iter().copied().find(|vendor| {
            let Description { memory: device, managed, .. } = vendor.description();
            memory == *device || memory == *managed
        })
    }

    /// The vendor with a number that came from another process.
    pub fn from_number(number: u64) -> Option<Vendor> {
        Vendor::ALL.iter().copied().find(|&vendor| vendor as u64 == number)
    }

    /// The vendor's driver in this process.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(self) -> Result<Box<dyn Driver>, Error> {
        (self.description().open)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memory_but_the_hosts_is_one_vendors() {
        for memory in MemoryType::ALL {
            let owners = Vendor::ALL.iter().filter(|vendor| {
                let description = vendor.description();
                description.memory == memory || description.managed == memory
            });
            assert_eq!(owners.count(), usize::from(memory != MemoryType::Host), "{memory:?}");
        }
    }

    #[test]
    fn numbers_name_vendors() {
        for &vendor in Vendor::ALL {
            assert_eq!(Vendor::from_number(vendor as u64), Some(vendor));
        }
        assert_eq!(Vendor::from_number(0), None);
    }
}
