//! What a kernel must give, computed in another way: integers in i128, every float step in f64 and then rounded, fp8
//! by searching the table of its 256 numbers.

use std::sync::OnceLock;

use half::{bf16, f16};

/// The element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bits, and whether there is a sign.
    Int(u32, bool),
    F16,
    Bf16,
    F32,
    F64,
    E4m3,
    E5m2,
    C64,
    C128,
    F32Int,
    F64Int,
    I64Int,
    I32Int,
    I16Int,
}

const INTEGERS: [Kind; 8] = [
    Kind::Int(8, true),
    Kind::Int(8, false),
    Kind::Int(16, true),
    Kind::Int(16, false),
    Kind::Int(32, true),
    Kind::Int(32, false),
    Kind::Int(64, true),
    Kind::Int(64, false),
];
const FLOATS: [Kind; 6] = [Kind::F16, Kind::Bf16, Kind::F32, Kind::F64, Kind::E4m3, Kind::E5m2];
const COMPLEX: [Kind; 2] = [Kind::C64, Kind::C128];
const PAIRS: [Kind; 5] = [Kind::F32Int, Kind::F64Int, Kind::I64Int, Kind::I32Int, Kind::I16Int];

impl Kind {
    pub fn size(self) -> usize {
        match self {
            Kind::Int(bits, _) => bits as usize / 8,
            Kind::E4m3 | Kind::E5m2 => 1,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
            Kind::F64 | Kind::C64 | Kind::F32Int | Kind::I32Int | Kind::I16Int => 8,
            Kind::C128 | Kind::F64Int | Kind::I64Int => 16,
        }
    }

    fn name(self) -> String {
        match self {
            Kind::Int(bits, signed) => format!("{}{bits}", if signed { "i" } else { "u" }),
            Kind::F16 => "f16".into(),
            Kind::Bf16 => "bf16".into(),
            Kind::F32 => "f32".into(),
            Kind::F64 => "f64".into(),
            Kind::E4m3 => "f8e4m3".into(),
            Kind::E5m2 => "f8e5m2".into(),
            Kind::C64 => "c64".into(),
            Kind::C128 => "c128".into(),
            Kind::F32Int => "f32_i32".into(),
            Kind::F64Int => "f64_i32".into(),
            Kind::I64Int => "i64_i32".into(),
            Kind::I32Int => "i32_i32".into(),
            Kind::I16Int => "i16_i32".into(),
        }
    }

    /// A small number, and a small index where there is one.
    pub fn small(self, value: i32, index: i32) -> Vec<u8> {
        let narrow = |value: f64| encode(self, value);
        match self {
            Kind::Int(bits, _) => value.unsigned_wide()[..bits as usize / 8].to_vec(),
            Kind::C64 => [(value as f32).to_le_bytes(), (index as f32).to_le_bytes()].concat(),
            Kind::C128 => [f64::from(value).to_le_bytes(), f64::from(index).to_le_bytes()].concat(),
            Kind::F32Int => [(value as f32).to_le_bytes(), index.to_le_bytes()].concat(),
            Kind::I32Int => [value.to_le_bytes(), index.to_le_bytes()].concat(),
            Kind::I16Int => {
                [&(value as i16).to_le_bytes()[..], &[1, 2], &index.to_le_bytes()].concat()
            }
            Kind::F64Int => {
                [&f64::from(value).to_le_bytes()[..], &index.to_le_bytes(), &[3; 4]].concat()
            }
            Kind::I64Int => {
                [&i64::from(value).to_le_bytes()[..], &index.to_le_bytes(), &[4; 4]].concat()
            }
            _ => narrow(f64::from(value)),
        }
    }
}

trait Wide {
    fn unsigned_wide(self) -> [u8; 8];
}
impl Wide for i32 {
    fn unsigned_wide(self) -> [u8; 8] {
        i64::from(self).to_le_bytes()
    }
}

/// An operation on a type.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub op: &'static str,
    pub kind: Kind,
}

impl Kernel {
    /// Every reduction.
    pub fn all() -> Vec<Kernel> {
        let mut all = Vec::new();
        let mut add = |ops: &[&'static str], kinds: &[Kind]| {
            for &op in ops {
                all.extend(kinds.iter().map(|&kind| Kernel { op, kind }));
            }
        };
        add(&["sum", "prod", "min", "max", "avg", "premulsum"], &INTEGERS);
        add(&["sum", "prod", "min", "max", "avg", "premulsum"], &FLOATS);
        add(&["sum", "prod"], &COMPLEX);
        add(&["band", "bor", "bxor", "land", "lor", "lxor"], &INTEGERS);
        add(&["minloc", "maxloc"], &PAIRS);
        all
    }

    pub fn name(&self) -> String {
        format!("hetccl_reduce_{}_{}", self.op, self.kind.name())
    }
}

/// Equal, where any NaN of f32 and f64 equals any other.
pub fn same(kernel: Kernel, got: &[u8], want: &[u8]) -> bool {
    let parts = |bytes: &[u8]| -> Vec<Option<f64>> {
        match kernel.kind {
            Kind::F32 | Kind::C64 => bytes
                .chunks(4)
                .map(|part| f64::from(f32::from_le_bytes(part.try_into().unwrap())))
                .map(Some)
                .collect(),
            Kind::F64 | Kind::C128 => bytes
                .chunks(8)
                .map(|part| Some(f64::from_le_bytes(part.try_into().unwrap())))
                .collect(),
            _ => vec![None],
        }
    };
    let equal = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        _ => got == want,
    };
    let keeps_bits = matches!(kernel.op, "min" | "max");
    if keeps_bits { got == want } else { parts(got).into_iter().zip(parts(want)).all(equal) }
}

/// The result for one element of each input.
pub fn expected(kernel: Kernel, column: &[&[u8]], scalar: u64) -> Vec<u8> {
    match kernel.kind {
        Kind::Int(bits, signed) => integer(kernel.op, bits, signed, column, scalar),
        Kind::C64 | Kind::C128 => complex(kernel, column),
        Kind::F32Int | Kind::F64Int | Kind::I64Int | Kind::I32Int | Kind::I16Int => {
            located(kernel, column)
        }
        _ => float(kernel, column, scalar),
    }
}

fn integer(op: &str, bits: u32, signed: bool, column: &[&[u8]], scalar: u64) -> Vec<u8> {
    let decode = |bytes: &[u8]| {
        let unsigned = bytes.iter().rev().fold(0i128, |sum, &byte| (sum << 8) | i128::from(byte));
        let negative = signed && unsigned >> (bits - 1) != 0;
        if negative { unsigned - (1 << bits) } else { unsigned }
    };
    let encode = |value: i128| value.to_le_bytes()[..bits as usize / 8].to_vec();
    let wrap = |value: i128| decode(&encode(value));
    let factor = wrap(i128::from(scalar));
    let mut values = column.iter().map(|bytes| decode(bytes));
    let first = values.next().unwrap();
    let first = if op == "premulsum" { wrap(first.wrapping_mul(factor)) } else { first };
    let result = values.fold(first, |a, b| match op {
        "sum" | "avg" => wrap(a + b),
        "premulsum" => wrap(a + wrap(b.wrapping_mul(factor))),
        "prod" => wrap(a.wrapping_mul(b)),
        "min" => a.min(b),
        "max" => a.max(b),
        "band" => a & b,
        "bor" => a | b,
        "bxor" => a ^ b,
        "land" => i128::from(a != 0 && b != 0),
        "lor" => i128::from(a != 0 || b != 0),
        "lxor" => i128::from((a != 0) != (b != 0)),
        _ => unreachable!("{op}"),
    });
    encode(if op == "avg" { result / i128::from(scalar.max(1)) } else { result })
}

/// Rounds a step: all but f64 compute in f32. (Of sums, products and quotients of f32, f64 is wide enough that to round
/// twice is to round once.)
fn step(kind: Kind, value: f64) -> f64 {
    if kind == Kind::F64 { value } else { f64::from(value as f32) }
}

fn float(kernel: Kernel, column: &[&[u8]], scalar: u64) -> Vec<u8> {
    let Kernel { op, kind } = kernel;
    if matches!(op, "min" | "max") {
        let mut best = column[0];
        for other in &column[1..] {
            let (a, b) = (decode(kind, best), decode(kind, other));
            let keep = if op == "min" { a < b } else { a > b };
            best = if keep { best } else { other };
        }
        return best.to_vec();
    }
    let factor = decode(kind, &scalar.to_le_bytes()[..kind.size()]);
    let mut values = column.iter().map(|bytes| decode(kind, bytes));
    let first = values.next().unwrap();
    let first = if op == "premulsum" { step(kind, first * factor) } else { first };
    let result = values.fold(first, |a, b| match op {
        "sum" | "avg" => step(kind, a + b),
        "premulsum" => step(kind, a + step(kind, b * factor)),
        "prod" => step(kind, a * b),
        _ => unreachable!("{op}"),
    });
    let divisor = step(kind, scalar.max(1) as f64);
    encode(kind, if op == "avg" { step(kind, result / divisor) } else { result })
}

fn decode(kind: Kind, bytes: &[u8]) -> f64 {
    match kind {
        Kind::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        Kind::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        Kind::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        Kind::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        Kind::E4m3 | Kind::E5m2 => table(kind)[usize::from(bytes[0])],
        _ => unreachable!("{kind:?}"),
    }
}

/// `value` is an f32's, but for f64.
fn encode(kind: Kind, value: f64) -> Vec<u8> {
    match kind {
        Kind::F16 | Kind::Bf16 if value.is_nan() => vec![0xff, 0x7f],
        Kind::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        Kind::Bf16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        Kind::F32 => (value as f32).to_le_bytes().to_vec(),
        Kind::F64 => value.to_le_bytes().to_vec(),
        Kind::E4m3 | Kind::E5m2 => vec![nearest(kind, value)],
        _ => unreachable!("{kind:?}"),
    }
}

/// The numbers of an fp8 type.
fn table(kind: Kind) -> &'static [f64; 256] {
    static TABLES: OnceLock<[[f64; 256]; 2]> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        // (bits of the mantissa, bias, what the largest exponent holds)
        [(3, 7, false), (2, 15, true)].map(|(mantissa_bits, bias, has_infinity)| {
            std::array::from_fn(|byte| {
                let magnitude = byte & 0x7f;
                let (exponent, mantissa) =
                    (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
                let fraction = mantissa as f64 / f64::from(1 << mantissa_bits);
                let value = match (exponent, has_infinity) {
                    (15, false) if mantissa == 7 => f64::NAN,
                    (31, true) if mantissa == 0 => f64::INFINITY,
                    (31, true) => f64::NAN,
                    (0, _) => fraction * 2f64.powi(1 - bias),
                    _ => (1.0 + fraction) * 2f64.powi(exponent as i32 - bias),
                };
                if byte >= 0x80 { -value } else { value }
            })
        })
    });
    if kind == Kind::E4m3 { &tables[0] } else { &tables[1] }
}

/// The nearest finite number of an fp8 type; of two equally near the one with an even last bit.
fn nearest(kind: Kind, value: f64) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let table = table(kind);
    let finite = (0..0x80u8).filter(|&byte| table[usize::from(byte)].is_finite());
    // An infinity is as far from all of them; the largest it is.
    let magnitude = value.abs().min(1e9);
    let distance = |byte: u8| (table[usize::from(byte)] - magnitude).abs();
    let best = finite
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
        .unwrap_or_default();
    best | if value.is_sign_negative() { 0x80 } else { 0 }
}

fn complex(kernel: Kernel, column: &[&[u8]]) -> Vec<u8> {
    let part = if kernel.kind == Kind::C64 { Kind::F32 } else { Kind::F64 };
    let half = part.size();
    let mut values = column.iter().map(|b| (decode(part, &b[..half]), decode(part, &b[half..])));
    let first = values.next().unwrap();
    let (re, im) = values.fold(first, |a, b| {
        if kernel.op == "sum" {
            return (step(part, a.0 + b.0), step(part, a.1 + b.1));
        }
        let product = |x: f64, y: f64| step(part, x * y);
        (
            step(part, product(a.0, b.0) - product(a.1, b.1)),
            step(part, product(a.0, b.1) + product(a.1, b.0)),
        )
    });
    [encode(part, re), encode(part, im)].concat()
}

/// The whole element that has the best value, padding included.
fn located(kernel: Kernel, column: &[&[u8]]) -> Vec<u8> {
    let (bytes, index_at) = match kernel.kind {
        Kind::I16Int => (2, 4),
        Kind::F32Int | Kind::I32Int => (4, 4),
        _ => (8, 8),
    };
    let value = |element: &[u8]| -> (Option<i64>, f64) {
        let element = &element[..bytes];
        match kernel.kind {
            Kind::F32Int => (None, decode(Kind::F32, element)),
            Kind::F64Int => (None, decode(Kind::F64, element)),
            _ => {
                let sign = if element[bytes - 1] >= 0x80 { 0xff } else { 0 };
                let mut wide = [sign; 8];
                wide[..bytes].copy_from_slice(element);
                (Some(i64::from_le_bytes(wide)), 0.0)
            }
        }
    };
    let index =
        |element: &[u8]| i32::from_le_bytes(element[index_at..index_at + 4].try_into().unwrap());
    let mut best = column[0];
    for &other in &column[1..] {
        let (a, b) = (value(best), value(other));
        let better = if kernel.op == "minloc" { a < b } else { a > b };
        let tie = a == b && index(best) < index(other);
        best = if better || tie { best } else { other };
    }
    best.to_vec()
}
