//! Elementwise reductions of host memory, for every datatype and operation that hetccl knows.
//!
//! One generic loop, compiled once for the baseline and once for AVX2, which is chosen at run time. Elements are
//! read and written without asking for alignment: packed buffers and odd chunks are legal.

use std::ptr::{read_unaligned, write_unaligned};

use half::{bf16, f16};
use hetccl_core::{Datatype, ReductionOp};

/// `into[i] = left[i] op right[i]` for `count` elements.
///
/// # Safety
/// `left`, `right` and `into` point to `count` elements of `datatype`; `into` is `left` or `right` or overlaps neither.
pub(crate) unsafe fn reduce(
    op: ReductionOp,
    datatype: Datatype,
    left: *const u8,
    right: *const u8,
    into: *mut u8,
    count: usize,
) {
    macro_rules! integer {
        ($type:ty) => {
            // SAFETY: the caller's promise, with the element type that belongs to `datatype`.
            unsafe { integer::<$type>(op, left.cast(), right.cast(), into.cast(), count) }
        };
    }
    macro_rules! float {
        ($type:ty) => {
            // SAFETY: the caller's promise, with the element type that belongs to `datatype`.
            unsafe { float::<$type>(op, left.cast(), right.cast(), into.cast(), count) }
        };
    }
    match datatype {
        Datatype::Int8 => integer!(i8),
        Datatype::Int16 => integer!(i16),
        Datatype::Int32 => integer!(i32),
        Datatype::Int64 => integer!(i64),
        Datatype::Uint8 => integer!(u8),
        Datatype::Uint16 => integer!(u16),
        Datatype::Uint32 => integer!(u32),
        Datatype::Uint64 => integer!(u64),
        Datatype::Float16 => float!(f16),
        Datatype::Bfloat16 => float!(bf16),
        Datatype::Float32 => float!(f32),
        Datatype::Float64 => float!(f64),
    }
}

/// The arithmetic that every element type has.
trait Element: Copy {
    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
}

/// Integers have logic and bits besides.
trait Integer: Element {
    fn truth(value: bool) -> Self;
    fn is_true(self) -> bool;
    fn bit_and(self, other: Self) -> Self;
    fn bit_or(self, other: Self) -> Self;
    fn bit_xor(self, other: Self) -> Self;
}

macro_rules! ordered_min_max {
    () => {
        #[inline(always)]
        fn min(self, other: Self) -> Self {
            if self < other { self } else { other }
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            if self > other { self } else { other }
        }
    };
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { self.wrapping_mul(other) }
            ordered_min_max!();
        }
        impl Integer for $type {
            #[inline(always)]
            fn truth(value: bool) -> Self { value as $type }
            #[inline(always)]
            fn is_true(self) -> bool { self != 0 }
            #[inline(always)]
            fn bit_and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn bit_or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn bit_xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { self * other }
            ordered_min_max!();
        }
    )*};
}
floats!(f32, f64);

macro_rules! halves {
    ($($type:ty),*) => {$(
        // Half types are widened to f32 for each pairwise step.
        impl Element for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { <$type>::from_f32(self.to_f32() + other.to_f32()) }
            #[inline(always)]
            fn prod(self, other: Self) -> Self { <$type>::from_f32(self.to_f32() * other.to_f32()) }
            ordered_min_max!();
        }
    )*};
}
halves!(f16, bf16);

/// # Safety
/// As [`reduce`], with elements of type `T`.
unsafe fn integer<T: Integer>(
    op: ReductionOp,
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match op {
            ReductionOp::LogicalAnd => {
                each(left, right, into, count, |a, b| T::truth(a.is_true() & b.is_true()))
            }
            ReductionOp::LogicalOr => {
                each(left, right, into, count, |a, b| T::truth(a.is_true() | b.is_true()))
            }
            ReductionOp::LogicalXor => {
                each(left, right, into, count, |a, b| T::truth(a.is_true() ^ b.is_true()))
            }
            ReductionOp::BitAnd => each(left, right, into, count, T::bit_and),
            ReductionOp::BitOr => each(left, right, into, count, T::bit_or),
            ReductionOp::BitXor => each(left, right, into, count, T::bit_xor),
            _ => arithmetic(op, left, right, into, count),
        }
    }
}

/// # Safety
/// As [`reduce`], with elements of type `T`.
unsafe fn float<T: Element>(
    op: ReductionOp,
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
) {
    // SAFETY: the caller's promise is passed on.
    unsafe { arithmetic(op, left, right, into, count) }
}

/// # Safety
/// As [`reduce`], with elements of type `T`.
unsafe fn arithmetic<T: Element>(
    op: ReductionOp,
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match op {
            ReductionOp::Sum => each(left, right, into, count, T::sum),
            ReductionOp::Prod => each(left, right, into, count, T::prod),
            ReductionOp::Min => each(left, right, into, count, T::min),
            ReductionOp::Max => each(left, right, into, count, T::max),
            _ => unreachable!("{op:?} is for integers; front ends hand it over for no other type"),
        }
    }
}

/// Runs `combine` over all elements, with the widest instructions that this CPU has.
///
/// # Safety
/// As [`reduce`], with elements of type `T`.
#[inline]
unsafe fn each<T: Copy>(
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: the caller's promise; AVX2 code runs only where the CPU has it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            return each_avx2(left, right, into, count, combine);
        }
        each_baseline(left, right, into, count, combine);
    }
}

/// # Safety
/// As [`each`], on a CPU with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn each_avx2<T: Copy>(
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: the caller's promise is passed on.
    unsafe { each_baseline(left, right, into, count, combine) }
}

/// Three loops, because the compiler vectorises each only when it can see which operands are the same memory.
///
/// # Safety
/// As [`each`].
#[inline(always)]
unsafe fn each_baseline<T: Copy>(
    left: *const T,
    right: *const T,
    into: *mut T,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: every index is below `count`, and all three pointers are good for `count` elements.
    unsafe {
        if into.cast_const() == right {
            for i in 0..count {
                let value = combine(read_unaligned(left.add(i)), read_unaligned(into.add(i)));
                write_unaligned(into.add(i), value);
            }
        } else if into.cast_const() == left {
            for i in 0..count {
                let value = combine(read_unaligned(into.add(i)), read_unaligned(right.add(i)));
                write_unaligned(into.add(i), value);
            }
        } else {
            for i in 0..count {
                let value = combine(read_unaligned(left.add(i)), read_unaligned(right.add(i)));
                write_unaligned(into.add(i), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Copy + Default>(
        op: ReductionOp,
        datatype: Datatype,
        a: &[T],
        b: &[T],
    ) -> [Vec<T>; 3] {
        let count = a.len();
        let (mut apart, mut onto_left, mut onto_right) =
            (vec![T::default(); count], a.to_vec(), b.to_vec());
        // SAFETY: all vectors have `count` elements.
        unsafe {
            reduce(
                op,
                datatype,
                a.as_ptr().cast(),
                b.as_ptr().cast(),
                apart.as_mut_ptr().cast(),
                count,
            );
            let left = onto_left.as_mut_ptr();
            reduce(op, datatype, left.cast(), b.as_ptr().cast(), left.cast(), count);
            let right = onto_right.as_mut_ptr();
            reduce(op, datatype, a.as_ptr().cast(), right.cast(), right.cast(), count);
        }
        [apart, onto_left, onto_right]
    }

    #[test]
    fn integers_wrap_compare_and_combine_bits() {
        let (a, b): (Vec<i8>, Vec<i8>) = ((-60..60).collect(), (-120..120).step_by(2).collect());
        type Case = (ReductionOp, fn(i8, i8) -> i8);
        let cases: [Case; 10] = [
            (ReductionOp::Sum, i8::wrapping_add),
            (ReductionOp::Prod, i8::wrapping_mul),
            (ReductionOp::Min, Ord::min),
            (ReductionOp::Max, Ord::max),
            (ReductionOp::LogicalAnd, |x, y| (x != 0 && y != 0) as i8),
            (ReductionOp::LogicalOr, |x, y| (x != 0 || y != 0) as i8),
            (ReductionOp::LogicalXor, |x, y| ((x != 0) != (y != 0)) as i8),
            (ReductionOp::BitAnd, |x, y| x & y),
            (ReductionOp::BitOr, |x, y| x | y),
            (ReductionOp::BitXor, |x, y| x ^ y),
        ];
        for (op, expected) in cases {
            let want: Vec<i8> = a.iter().zip(&b).map(|(&x, &y)| expected(x, y)).collect();
            for got in run(op, Datatype::Int8, &a, &b) {
                assert_eq!(got, want, "{op:?}");
            }
        }
    }

    #[test]
    fn floats_of_every_width() {
        let a: Vec<f64> = (0..37).map(f64::from).collect();
        let b: Vec<f64> = (0..37).map(|i| f64::from(i) * 0.25 - 3.0).collect();
        let want: Vec<f64> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
        assert_eq!(run(ReductionOp::Sum, Datatype::Float64, &a, &b)[1], want);
        let narrow = |v: &[f64]| v.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        assert_eq!(
            run(ReductionOp::Sum, Datatype::Float32, &narrow(&a), &narrow(&b))[0],
            narrow(&want)
        );
        let half = |v: &[f64]| v.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>();
        assert_eq!(run(ReductionOp::Sum, Datatype::Float16, &half(&a), &half(&b))[2], half(&want));
        let brain = |v: &[f64]| v.iter().map(|&x| bf16::from_f64(x)).collect::<Vec<_>>();
        assert_eq!(run(ReductionOp::Max, Datatype::Bfloat16, &brain(&a), &brain(&b))[0], brain(&a));
    }
}
