//! Reductions of fp8 in host memory, which the runtime does not have.

use half::f16;
use hetccl_core::{Reduction, ReductionOp};
use hetccl_runtime::ExternalReducer;

use crate::abi::{Element, OPERATIONS};

/// fp8, one operation at a time in f32.
pub(crate) struct Float8Reducer;

/// The reduction of fp8 elements; `None` for other types.
pub(crate) fn reduction(element: Element, op: ReductionOp) -> Option<Reduction> {
    let index = OPERATIONS.iter().position(|&other| other == op)?;
    match element {
        Element::Core(_) => None,
        Element::Float8e4m3 => Some(Reduction::External(index)),
        Element::Float8e5m2 => Some(Reduction::External(OPERATIONS.len() + index)),
    }
}

/// The bits of an fp8 element nearest to a value.
pub(crate) fn bits(element: Element, value: f32) -> u8 {
    match element {
        Element::Float8e5m2 => narrow(value, 5, 2, 57344.0),
        _ => narrow(value, 4, 3, 448.0),
    }
}

impl ExternalReducer for Float8Reducer {
    unsafe fn reduce(&self, operation: usize, left: *const u8, inout: *mut u8, count: usize) {
        // SAFETY: `count` elements of one byte each that don't overlap (the trait's contract).
        let (left, inout) = unsafe {
            (std::slice::from_raw_parts(left, count), std::slice::from_raw_parts_mut(inout, count))
        };
        let op = OPERATIONS[operation % OPERATIONS.len()];
        type Widen = fn(u8) -> f32;
        type Narrow = fn(f32) -> u8;
        let (widen, narrow): (Widen, Narrow) = if operation < OPERATIONS.len() {
            (widen_e4m3, |value| narrow(value, 4, 3, 448.0))
        } else {
            (widen_e5m2, |value| narrow(value, 5, 2, 57344.0))
        };
        for (a, b) in left.iter().zip(inout) {
            let (x, y) = (widen(*a), widen(*b));
            *b = narrow(match op {
                ReductionOp::Prod => x * y,
                ReductionOp::Max => {
                    if x > y {
                        x
                    } else {
                        y
                    }
                }
                ReductionOp::Min => {
                    if x < y {
                        x
                    } else {
                        y
                    }
                }
                _ => x + y,
            });
        }
    }
}

fn widen_e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * mantissa * 2f32.powi(-9),
        _ => sign * (8.0 + mantissa) * 2f32.powi(exponent - 10),
    }
}

fn widen_e5m2(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}

/// To nearest, ties to even; what is too large becomes the largest finite number.
fn narrow(value: f32, exponent_bits: i32, mantissa_bits: i32, largest: f32) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs().min(largest);
    let bias = (1 << (exponent_bits - 1)) - 1;
    if size == 0.0 {
        return sign;
    }
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(1 - bias);
    let steps = f64::from(size) * 2f64.powi(mantissa_bits - exponent);
    // Of at most `mantissa_bits + 1` bits; a carry goes into the exponent as it should.
    let steps = steps.round_ties_even() as i32;
    let code = ((exponent + bias - 1) << mantissa_bits) + steps;
    sign | code as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for byte in 0..=255u8 {
            let value = widen_e4m3(byte);
            if !value.is_nan() {
                assert_eq!(narrow(value, 4, 3, 448.0), byte, "e4m3 {byte:#x} {value}");
            }
            let value = widen_e5m2(byte);
            if value.is_finite() {
                assert_eq!(narrow(value, 5, 2, 57344.0), byte, "e5m2 {byte:#x} {value}");
            }
        }
        assert_eq!(widen_e4m3(narrow(1000.0, 4, 3, 448.0)), 448.0);
        assert_eq!(widen_e4m3(narrow(17.0, 4, 3, 448.0)), 16.0);
    }
}
