//! Addresses that are host memory beyond doubt, so that no driver is asked about them.
//!
//! The heap below the program break and the main thread's stack belong to the process from the start, and drivers give out
//! addresses elsewhere. Blocks that malloc maps one by one, and the arenas and stacks of other threads, are not known here.

use std::ops::Range;
use std::sync::LazyLock;

/// The heap as it was found and the stack as far as it reached then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mapped {
    heap: Range<usize>,
    stack: Range<usize>,
}

static MAPPED: LazyLock<Mapped> =
    LazyLock::new(|| mapped(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()));

/// Whether an address is in the heap or the main thread's stack. `false` says nothing.
#[inline]
pub fn is_surely_host(address: usize) -> bool {
    let Mapped { heap, stack } = &*MAPPED;
    stack.contains(&address)
        || heap.contains(&address)
        || (!heap.is_empty() && (heap.end..program_break()).contains(&address))
}

/// The heap's end now; it only matters where the heap has grown.
fn program_break() -> usize {
    // SAFETY: an increment of 0 only asks.
    unsafe { libc::sbrk(0) }.addr()
}

/// What the kernel's list of mappings calls heap and stack.
fn mapped(maps: &str) -> Mapped {
    let mut found = Mapped::default();
    for line in maps.lines() {
        let place = match line.rsplit(' ').next() {
            Some("[heap]") => &mut found.heap,
            Some("[stack]") => &mut found.stack,
            _ => continue,
        };
        let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parsed = ends.and_then(|(start, end)| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        });
        *place = parsed.unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_stack_are_found_in_the_list() {
        let maps = "5581-5582 r-xp 00000000 08:01 12 /bin/cat\n\
                    564fcbf05000-564fcbf26000 rw-p 00000000 00:00 0                          [heap]\n\
                    7ffc0000-7ffc2000 rw-p 00000000 00:00 0      [stack]\n\
                    zz-7ffc4000 r-xp 00000000 00:00 0            [vdso]\n";
        let (heap, stack) = (0x564f_cbf0_5000..0x564f_cbf2_6000, 0x7ffc_0000..0x7ffc_2000);
        assert_eq!(mapped(maps), Mapped { heap, stack });
        assert_eq!(mapped("zz-12 rw-p [heap]\n\n[stack]"), Mapped::default());
    }

    #[test]
    fn small_blocks_are_host_memory_and_mappings_are_not_known() {
        // SAFETY: a new mapping, given back at the end.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(!is_surely_host(mapping.addr()) && !is_surely_host(0));
        assert!(!is_surely_host(program_break()), "one past the heap");
        let heap = MAPPED.heap.clone();
        assert!(heap.is_empty() || (is_surely_host(heap.start) && is_surely_host(heap.end - 1)));
        // SAFETY: mapped above.
        unsafe { libc::munmap(mapping, 4096) };
    }
}
