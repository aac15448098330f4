//! The order of encoded keys: eight bytes at a time, compared as one number.
//!
//! Keys of one view begin alike, and a comparison of two of them walks over what all have in common. Here that is passed over once for
//! all, and keys that are equal in the next eight bytes are a smaller question of the same kind (a most significant digit first sort).

use std::cmp::Ordering;

use arrow::array::{Array, BinaryArray};

/// So few keys are compared byte by byte.
const FEW: usize = 16;

/// A row, by the next bytes of its key: fewer than eight are followed by zeros, and come before those that have zeros there.
#[derive(Clone, Copy)]
struct Digit {
    bytes: u64,
    len: u8,
    row: u32,
}

impl Digit {
    fn place(&self) -> (u64, u8) {
        (self.bytes, self.len)
    }
}

/// The rows in the order of their keys; `among_equals` orders rows of one key.
pub(super) fn sorted_rows(keys: &BinaryArray, among_equals: &dyn Fn(u32, u32) -> Ordering) -> Vec<u32> {
    let mut digits: Vec<Digit> = (0..keys.len() as u32).map(|row| Digit { bytes: 0, len: 0, row }).collect();
    sort(keys, &mut digits, 0, among_equals);
    digits.into_iter().map(|digit| digit.row).collect()
}

/// Sorts rows whose keys are equal in their first `from` bytes.
fn sort(keys: &BinaryArray, digits: &mut [Digit], from: usize, among_equals: &dyn Fn(u32, u32) -> Ordering) {
    if digits.len() <= FEW {
        let rest = |digit: &Digit| &keys.value(digit.row as usize)[from..];
        digits.sort_unstable_by(|a, b| rest(a).cmp(rest(b)).then_with(|| among_equals(a.row, b.row)));
        return;
    }
    let from = from + in_common(keys, digits, from);
    for digit in &mut *digits {
        let rest = &keys.value(digit.row as usize)[from..];
        let len = rest.len().min(8);
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&rest[..len]);
        (digit.bytes, digit.len) = (u64::from_be_bytes(bytes), len as u8);
    }
    digits.sort_unstable_by_key(Digit::place);
    for equal in digits.chunk_by_mut(|a, b| a.place() == b.place()) {
        match equal {
            [_] => {}
            [Digit { len: 8, .. }, ..] => sort(keys, equal, from + 8, among_equals),
            _ => equal.sort_unstable_by(|a, b| among_equals(a.row, b.row)),
        }
    }
}

/// How many bytes after the first `from` all keys have in common.
fn in_common(keys: &BinaryArray, digits: &[Digit], from: usize) -> usize {
    let mut common = &keys.value(digits[0].row as usize)[from..];
    for digit in digits {
        let rest = &keys.value(digit.row as usize)[from..];
        let same = common.iter().zip(rest).take_while(|(a, b)| a == b).count();
        common = &common[..same];
        if same == 0 {
            break;
        }
    }
    common.len()
}

#[cfg(test)]
mod tests;
