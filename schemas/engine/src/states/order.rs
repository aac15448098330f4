//! The order of encoded keys: their bytes compared as numbers.
//!
//! Keys of one view begin alike, and a comparison of two of them walks over what all have in common. Most often they are of one length,
//! and differ in a few bytes only: these, as one number, are read once, in the order of the rows ([`numbered`]). Otherwise the common
//! beginning is passed over once for all, and keys that are equal in the next eight bytes are a smaller question of the same kind (a most
//! significant digit first sort), which reads each key again at each step.

use std::cmp::Ordering;

use arrow::array::{Array, BinaryArray};

/// So few keys are compared byte by byte.
const FEW: usize = 16;

/// Bytes that are compared as one number.
const NUMBER_BYTES: usize = size_of::<u128>();
/// So many keys are looked at before it is asked again in how many bytes they differ.
const ASKED: usize = 256;

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

/// Orders rows of one key.
type AmongEquals<'a> = dyn Fn(u32, u32) -> Ordering + 'a;

/// The rows in the order of their keys; `among_equals` orders rows of one key.
pub(super) fn sorted_rows(keys: &BinaryArray, among_equals: &AmongEquals<'_>) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..keys.len() as u32).collect();
    if numbered(keys, &mut rows, among_equals) {
        return rows;
    }
    // Both sides' edges differ in all their bytes, each side's in a few.
    let from = in_common(keys, &rows, 0);
    let next = |row: &u32| keys.value(*row as usize).get(from).copied();
    rows.sort_by_key(next);
    for alike in rows.chunk_by_mut(|a, b| next(a) == next(b)) {
        if !numbered(keys, alike, among_equals) {
            let mut digits: Vec<Digit> = alike.iter().map(|row| Digit { bytes: 0, len: 0, row: *row }).collect();
            sort(keys, &mut digits, from, among_equals);
            alike.iter_mut().zip(digits).for_each(|(row, digit)| *row = digit.row);
        }
    }
    rows
}

/// Sorts rows by the bytes in which their keys differ, as one number. False, with nothing done, where these are too many, or the keys are
/// of several lengths.
fn numbered(keys: &BinaryArray, rows: &mut [u32], among_equals: &AmongEquals<'_>) -> bool {
    let Some(differing) = differing(keys, rows) else { return false };
    let number = |row: &u32| {
        let key = keys.value(*row as usize);
        (differing.iter().fold(0, |number, place| number << 8 | u128::from(key[*place])), *row)
    };
    let mut numbers: Vec<(u128, u32)> = rows.iter().map(number).collect();
    numbers.sort_unstable_by_key(|(number, _)| *number);
    for equal in numbers.chunk_by_mut(|a, b| a.0 == b.0).filter(|equal| equal.len() > 1) {
        equal.sort_unstable_by(|a, b| among_equals(a.1, b.1));
    }
    rows.iter_mut().zip(numbers).for_each(|(row, (_, of))| *row = of);
    true
}

/// The places at which keys of one length differ, where they fit one number.
fn differing(keys: &BinaryArray, rows: &[u32]) -> Option<Vec<usize>> {
    let first = keys.value(*rows.first()? as usize);
    let mut differ = vec![0u8; first.len()];
    for rows in rows.chunks(ASKED) {
        for row in rows {
            let key = keys.value(*row as usize);
            if key.len() != first.len() {
                return None;
            }
            differ.iter_mut().zip(first.iter().zip(key)).for_each(|(differ, (one, other))| *differ |= one ^ other);
        }
        if differ.iter().filter(|differ| **differ != 0).count() > NUMBER_BYTES {
            return None;
        }
    }
    Some((0..first.len()).filter(|place| differ[*place] != 0).collect())
}

/// Sorts rows whose keys are equal in their first `from` bytes.
fn sort(keys: &BinaryArray, digits: &mut [Digit], from: usize, among_equals: &AmongEquals<'_>) {
    if digits.len() <= FEW {
        let rest = |digit: &Digit| &keys.value(digit.row as usize)[from..];
        digits.sort_unstable_by(|a, b| rest(a).cmp(rest(b)).then_with(|| among_equals(a.row, b.row)));
        return;
    }
    let from = in_common(keys, digits.iter().map(|digit| &digit.row), from);
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

/// Where keys that are equal in their first `from` bytes cease to be.
fn in_common<'r>(keys: &BinaryArray, rows: impl IntoIterator<Item = &'r u32>, from: usize) -> usize {
    let mut rest = rows.into_iter().map(|row| &keys.value(*row as usize)[from..]);
    let Some(mut common) = rest.next() else { return from };
    for rest in rest {
        let same = common.iter().zip(rest).take_while(|(a, b)| a == b).count();
        common = &common[..same];
        if same == 0 {
            break;
        }
    }
    from + common.len()
}

#[cfg(test)]
mod tests;
