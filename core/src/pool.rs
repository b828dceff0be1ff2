//! Things by size, kept and used again within a bound.
//!
//! Sizes are powers of two from 4096 bytes on. What the things are (memory of the host, of a device) is the
//! owner's affair.

/// The smallest size.
const SMALLEST_BYTES: usize = 4096;

/// What is not in use, by size.
#[derive(Debug)]
pub struct Pool<T> {
    /// `free[i]` holds things of `SMALLEST_BYTES << i` bytes.
    free: Vec<Vec<T>>,
    kept_bytes: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool { free: Vec::new(), kept_bytes: 0 }
    }
}

impl<T> Pool<T> {
    /// The size that serves `len_bytes`; `None` when there is none.
    pub fn size_for(len_bytes: usize) -> Option<usize> {
        len_bytes.max(SMALLEST_BYTES).checked_next_power_of_two()
    }

    /// A kept thing of that size.
    pub fn take(&mut self, size_bytes: usize) -> Option<T> {
        let thing = self.free.get_mut(class_of(size_bytes))?.pop()?;
        self.kept_bytes -= size_bytes;
        Some(thing)
    }

    /// Keeps a thing of that size.
    ///
    /// # Errors
    /// The thing itself, when more than `limit_bytes` would be kept.
    pub fn put(&mut self, thing: T, size_bytes: usize, limit_bytes: usize) -> Result<(), T> {
        if self.kept_bytes + size_bytes > limit_bytes {
            return Err(thing);
        }
        let class = class_of(size_bytes);
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(thing);
        self.kept_bytes += size_bytes;
        Ok(())
    }

    /// Bytes of everything kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Everything kept, with its size in bytes.
    pub fn drain(&mut self) -> impl Iterator<Item = (T, usize)> + use<T> {
        self.kept_bytes = 0;
        let classes = std::mem::take(&mut self.free).into_iter().enumerate();
        classes.flat_map(|(class, things)| {
            things.into_iter().map(move |thing| (thing, SMALLEST_BYTES << class))
        })
    }
}

fn class_of(size_bytes: usize) -> usize {
    (size_bytes / SMALLEST_BYTES).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_kept_within_the_bound() {
        let mut pool = Pool::default();
        let size = Pool::<u64>::size_for(5000).unwrap();
        assert_eq!(size, 8192);
        assert_eq!(pool.take(size), None);
        assert_eq!(pool.put(0x1000, size, 8192), Ok(()));
        assert_eq!(pool.put(0x9000, size, 8192), Err(0x9000), "beyond the bound");
        assert_eq!(pool.take(size), Some(0x1000));
        assert_eq!(pool.drain().count(), 0);
        assert_eq!(Pool::<u64>::size_for(usize::MAX), None);
    }
}
