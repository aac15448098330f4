//! Quotients and products of whole numbers of 76 digits, exact up to the one rounding at the end, half away from zero.

use arrow::datatypes::i256;

/// 10^0 to 10^76. Every number here is below the last.
const POWERS: [i256; 77] = {
    let ten = i256::from_i128(10);
    let mut powers = [i256::ONE; 77];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1].wrapping_mul(ten);
        at += 1;
    }
    powers
};

const MOST_DIGITS: usize = POWERS.len() - 1;

/// Returns `left * 10^shift / right`, rounded. `None` if it has more than 76 digits. `right` is not 0.
pub(super) fn quotient(left: i256, right: i256, shift: usize) -> Option<i256> {
    let (dividend, divisor) = (magnitude(left)?, magnitude(right)?);
    let (mut quotient, mut rest) = div_rem(dividend, divisor);
    let mut shift = shift;
    // Long division, by as many digits at once as there is room for behind the rest.
    while shift > 0 && rest != i256::ZERO {
        let step = (MOST_DIGITS - digits(divisor)).min(shift);
        let (next, left_over) = match step {
            0 => next_digit(rest, divisor),
            _ => div_rem(rest.wrapping_mul(POWERS[step]), divisor),
        };
        let step = step.max(1);
        quotient = quotient.checked_mul(POWERS[step])?.checked_add(next)?;
        rest = left_over;
        shift -= step;
    }
    let quotient = match shift {
        0 => round(quotient, rest, divisor)?,
        // Nothing is left: zeros follow.
        _ if quotient == i256::ZERO => quotient,
        _ => quotient.checked_mul(*POWERS.get(shift)?)?,
    };
    signed(quotient, left.is_negative() != right.is_negative())
}

/// Returns `left * right / 10^dropped`, rounded. `None` if it has more than 76 digits. `dropped` is at most 38.
pub(super) fn product(left: i256, right: i256, dropped: usize) -> Option<i256> {
    let unit = POWERS[dropped];
    let (one, other) = (magnitude(left)?, magnitude(right)?);
    let ((one_whole, one_part), (other_whole, other_part)) = (div_rem(one, unit), div_rem(other, unit));
    // one * other / unit = one * other_whole + one_whole * other_part + one_part * other_part / unit
    let (parts, rest) = div_rem(one_part.wrapping_mul(other_part), unit);
    let product = one.checked_mul(other_whole)?.checked_add(one_whole.checked_mul(other_part)?)?.checked_add(parts)?;
    signed(round(product, rest, unit)?, left.is_negative() != right.is_negative())
}

fn magnitude(value: i256) -> Option<i256> {
    value.checked_abs().filter(|magnitude| *magnitude < POWERS[MOST_DIGITS])
}

fn signed(magnitude: i256, negative: bool) -> Option<i256> {
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    (magnitude < POWERS[MOST_DIGITS]).then_some(value)
}

/// Rounds up if the rest is at least half of the divisor.
fn round(quotient: i256, rest: i256, divisor: i256) -> Option<i256> {
    if rest >= divisor.wrapping_sub(rest) { quotient.checked_add(i256::ONE) } else { Some(quotient) }
}

/// The number of decimal digits of a number that is not negative. 0 has none.
fn digits(value: i256) -> usize {
    POWERS.partition_point(|power| *power <= value)
}

/// Divides ten times the rest, which itself might not fit: first twice the rest, then five times what is left of that.
fn next_digit(rest: i256, divisor: i256) -> (i256, i256) {
    let (two, five) = (i256::from_i128(2), i256::from_i128(5));
    let (halves, rest) = div_rem(rest.wrapping_mul(two), divisor);
    let (fifths, rest) = div_rem(rest.wrapping_mul(five), divisor);
    (halves.wrapping_mul(five).wrapping_add(fifths), rest)
}

/// Of numbers that are not negative, the divisor not 0.
fn div_rem(dividend: i256, divisor: i256) -> (i256, i256) {
    let quotient = dividend.wrapping_div(divisor);
    (quotient, dividend.wrapping_sub(quotient.wrapping_mul(divisor)))
}

#[cfg(test)]
mod tests;
