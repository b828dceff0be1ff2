//! Ranks that count for more in an average: `avg = sum(w[i] x[i]) / sum(w[i])`, with `w[i]` from HETCCL_RANK_WEIGHT of rank i.
//!
//! Weights are made whole numbers: as they are where all are whole and at most 2^20, otherwise as parts of 2^20 of the
//! largest. Each contribution is multiplied by its number, as the datatype has it, and the sum is divided by theirs; so equal
//! contributions give themselves back, up to the rounding of one multiplication, the sum and one division. float16 and 8-bit
//! floats would overflow: there contributions are multiplied by `w[i] / sum(w)`, as the datatype has that.

use half::{bf16, f16};
use hetccl_core::Datatype;

use crate::Failure;
use crate::abi::Element;
use crate::operation::Reduce;
use crate::reducer;

/// The setting: a number, 0 or more. Without it a rank counts as 1.
const SETTING: &str = "HETCCL_RANK_WEIGHT";
/// Largest whole weight.
const LARGEST: f64 = (1u32 << 20) as f64;
/// On the wire: no setting.
pub(crate) const NONE: u64 = u64::MAX;

/// The weights of a communicator's ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weights {
    rank: usize,
    /// As the program set them.
    set: Vec<f64>,
    whole: Vec<f64>,
    /// Whether `whole` is `set`.
    exact: bool,
}

/// This rank's weight for the others; what is no number goes as NaN.
pub(crate) fn own() -> u64 {
    match std::env::var(SETTING) {
        Err(std::env::VarError::NotPresent) => NONE,
        Ok(text) if text.is_empty() => NONE,
        Ok(text) => text.trim().parse().unwrap_or(f64::NAN).to_bits(),
        Err(std::env::VarError::NotUnicode(_)) => f64::NAN.to_bits(),
    }
}

impl Weights {
    /// From what all ranks said; `None` where no rank has a weight.
    ///
    /// # Errors
    /// The same on all ranks: a weight that is not a number of 0 or more, or a sum of 0.
    pub(crate) fn agree(rank: usize, all: &[u64]) -> Result<Option<Weights>, Failure> {
        if all.iter().all(|&bits| bits == NONE) {
            return Ok(None);
        }
        let number = |&bits: &u64| if bits == NONE { 1.0 } else { f64::from_bits(bits) };
        let set: Vec<f64> = all.iter().map(number).collect();
        if let Some(rank) = set.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
            let what =
                if set[rank].is_nan() { "not a number".to_owned() } else { set[rank].to_string() };
            return Err(Failure::argument(format!(
                "{SETTING} of rank {rank} is {what}: it must be a number of 0 or more"
            )));
        }
        let largest = set.iter().fold(0.0, |a: f64, &b| a.max(b));
        if largest == 0.0 {
            return Err(Failure::argument(format!(
                "{SETTING} is 0 on all {} ranks: an average needs one that counts",
                set.len()
            )));
        }
        let exact = set.iter().all(|weight| weight.fract() == 0.0 && *weight <= LARGEST);
        let whole =
            |&weight: &f64| if exact { weight } else { (weight / largest * LARGEST).round() };
        Ok(Some(Weights { rank, whole: set.iter().map(whole).collect(), set, exact }))
    }

    /// The average of elements of a type.
    ///
    /// # Errors
    /// Integers that would overflow or be rounded before they are summed.
    pub(crate) fn average(&self, element: Element) -> Result<Reduce, Failure> {
        let share = self.set[self.rank] / self.set.iter().sum::<f64>();
        let by_share = |factor: u64| Ok(Reduce::Weighted { factor, divisor: None });
        let datatype = match element {
            Element::Core(Datatype::Float16) => {
                return by_share(f16::from_f64(share).to_bits().into());
            }
            Element::Core(datatype) => datatype,
            small => return by_share(reducer::bits(small, share as f32).into()),
        };
        let round: fn(f64) -> f64 = match datatype {
            Datatype::Bfloat16 => |weight| bf16::from_f64(weight).to_f64(),
            _ => |weight| weight,
        };
        let own = round(self.whole[self.rank]);
        let factor = match datatype {
            Datatype::Bfloat16 => bf16::from_f64(own).to_bits().into(),
            Datatype::Float32 => (own as f32).to_bits().into(),
            Datatype::Float64 => own.to_bits(),
            _ if datatype.size_bytes() < 4 || !self.exact => {
                return Err(Failure::usage(format!(
                    "{SETTING} is set, and averages of {datatype:?} can't be weighted: whole weights and 32 or 64 bits are \
                     needed; use a type of floats"
                )));
            }
            _ => own as u64,
        };
        let divisor = self.whole.iter().map(|&weight| round(weight) as u64).sum();
        Ok(Reduce::Weighted { factor, divisor: Some(divisor) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(all: &[f64]) -> Vec<u64> {
        all.iter().map(|weight| weight.to_bits()).collect()
    }

    #[test]
    fn what_is_no_weight_is_refused_with_its_rank() {
        let refused = |all: &[f64]| Weights::agree(0, &bits(all)).unwrap_err().text;
        assert!(refused(&[1.0, f64::NAN]).contains("rank 1 is not a number"));
        assert!(refused(&[1.0, 2.0, -1.0]).contains("rank 2 is -1"));
        assert!(refused(&[f64::INFINITY, 1.0]).contains("rank 0 is inf"));
        assert!(refused(&[0.0, 0.0]).contains("0 on all 2 ranks"));
        assert_eq!(Weights::agree(0, &[NONE, NONE]), Ok(None));
    }

    #[test]
    fn weights_become_whole_numbers() {
        let weights = Weights::agree(1, &[NONE, 3f64.to_bits()]).unwrap().unwrap();
        let average = weights.average(Element::Core(Datatype::Int32)).unwrap();
        assert!(matches!(average, Reduce::Weighted { factor: 3, divisor: Some(4) }), "{average:?}");
        let halves = Weights::agree(0, &bits(&[0.5, 1.0])).unwrap().unwrap();
        let average = halves.average(Element::Core(Datatype::Float64)).unwrap();
        let (half, sum) = (f64::from(1 << 19).to_bits(), 3 << 19);
        assert!(
            matches!(average, Reduce::Weighted { factor, divisor: Some(by) } if factor == half && by == sum)
        );
        assert!(halves.average(Element::Core(Datatype::Int32)).is_err());
        let share = halves.average(Element::Core(Datatype::Float16)).unwrap();
        let third = u64::from(f16::from_f64(1.0 / 3.0).to_bits());
        assert!(matches!(share, Reduce::Weighted { factor, divisor: None } if factor == third));
    }
}
