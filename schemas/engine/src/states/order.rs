//! Sorts encoded keys by comparing their bytes as numbers.
//!
//! Keys of one view share a prefix, over which each comparison of two keys would walk. Usually all keys have the same
//! length and differ in only a few bytes. These bytes are read once, in row order, as one number per key
//! ([`numbered`]). Otherwise the common prefix is skipped once for all keys, and keys that are equal in the next eight
//! bytes are sorted recursively (a most significant digit first sort), which reads each key again at each step.

use std::cmp::Ordering;

use arrow::array::{Array, BinaryArray};

/// Up to this many keys are compared byte by byte.
const FEW: usize = 16;

/// The number of bytes that are compared as one number.
const NUMBER_BYTES: usize = size_of::<u128>();
/// The number of keys that are inspected before the count of differing bytes is checked again.
const ASKED: usize = 256;

/// A row with the next bytes of its key. Fewer than eight are padded with zeros, and sort before those that contain
/// these zeros.
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

/// Orders rows with the same key.
type AmongEquals<'a> = dyn Fn(u32, u32) -> Ordering + 'a;

/// Returns the rows in the order of their keys. `among_equals` orders rows with the same key.
pub(super) fn sorted_rows(keys: &BinaryArray, among_equals: &AmongEquals<'_>) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..keys.len() as u32).collect();
    if numbered(keys, &mut rows, among_equals) {
        return rows;
    }
    // Edges of different sides may differ in all bytes, but edges of one side in only a few.
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

/// Sorts rows by the bytes in which their keys differ, as one number. Returns false, and changes nothing, if these are
/// too many or the keys have different lengths.
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

/// Returns the positions at which keys of one length differ. `None` if they do not fit one number.
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

/// Returns the length of the common prefix of keys that are equal in their first `from` bytes.
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
