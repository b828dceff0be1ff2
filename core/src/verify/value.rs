//! Where the contents of an element come from.

use std::collections::HashMap;

use crate::schedule::Buffer;

/// A number for what an element holds; equal numbers mean equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Value(u32);

impl Value {
    /// Memory that nobody has written.
    pub(super) const POISON: Value = Value(0);
}

/// What a value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    Poison,
    /// An element that was there at the start.
    Initial {
        process: u32,
        buffer: Buffer,
        index: u32,
    },
    /// A reduction of two values.
    Reduced {
        left: Value,
        right: Value,
    },
}

/// All values of one run.
#[derive(Debug)]
pub(super) struct Values {
    origins: Vec<Origin>,
    /// The vector index that a value's contributions have in common.
    indices: Vec<u32>,
    numbers: HashMap<Origin, Value>,
    ordered: bool,
}

impl Values {
    /// With `ordered`, `a op b` and `b op a` are different values; otherwise they have the same bits.
    pub(super) fn new(ordered: bool) -> Values {
        Values { origins: vec![Origin::Poison], indices: vec![0], numbers: HashMap::new(), ordered }
    }

    pub(super) fn initial(&mut self, process: usize, buffer: Buffer, index: usize) -> Value {
        let (process, index) = (process as u32, index as u32);
        self.number(Origin::Initial { process, buffer, index }, index)
    }

    /// `left op right`.
    ///
    /// # Errors
    /// What is wrong with the operands.
    pub(super) fn reduce(&mut self, left: Value, right: Value) -> Result<Value, String> {
        if left == Value::POISON || right == Value::POISON {
            return Err("a reduction reads memory that nobody has written".into());
        }
        let (a, b) = (self.indices[left.0 as usize], self.indices[right.0 as usize]);
        if a != b {
            return Err(format!("a reduction combines element {a} with element {b}"));
        }
        let (left, right) =
            if self.ordered || left < right { (left, right) } else { (right, left) };
        Ok(self.number(Origin::Reduced { left, right }, a))
    }

    /// The initial elements in a value, from left to right.
    pub(super) fn leaves(&self, value: Value) -> Vec<(usize, Buffer, usize)> {
        let mut leaves = Vec::new();
        let mut stack = vec![value];
        while let Some(value) = stack.pop() {
            match self.origins[value.0 as usize] {
                Origin::Poison => {}
                Origin::Initial { process, buffer, index } => {
                    leaves.push((process as usize, buffer, index as usize));
                }
                Origin::Reduced { left, right } => stack.extend([right, left]),
            }
        }
        leaves
    }

    /// For messages to people.
    pub(super) fn describe(&self, value: Value) -> String {
        if value == Value::POISON {
            return "memory that nobody has written".into();
        }
        let leaves = self.leaves(value);
        let words = leaves.iter().map(|(p, b, i)| format!("{b:?}[{i}] of process {p}"));
        words.collect::<Vec<_>>().join(" op ")
    }

    fn number(&mut self, origin: Origin, index: u32) -> Value {
        let next = Value(self.origins.len() as u32);
        let number = *self.numbers.entry(origin).or_insert(next);
        if number == next {
            self.origins.push(origin);
            self.indices.push(index);
        }
        number
    }
}
