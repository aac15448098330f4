//! Exact numbers from their text: never through a float.

/// The value of a decimal number times `10^scale`, when that is a whole number that fits 128 bits.
///
/// Reads `[+-] digits [. digits] [e [+-] digits]` with at least one digit before or behind the point, so both JSON's numbers
/// and the looser ones that texts hold (`+5`, `007`, `.5`). The exponent may be of any size: `0e999999999` is 0.
pub(super) fn scaled(text: &str, scale: i64) -> Option<i128> {
    let (negative, rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if let Some(magnitude) = short(rest, scale) {
        return Some(if negative { -magnitude } else { magnitude });
    }
    let (digits, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&rest[..at], exponent(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let (mantissa, power) = mantissa(digits)?;
    let magnitude = shift(mantissa?, exponent.saturating_add(power).saturating_add(scale))?;
    Some(if negative { -magnitude } else { magnitude })
}

/// What nearly all numbers are: at most 19 digits without exponent, and none finer than the scale. `None`: another number, or none.
fn short(digits: &[u8], scale: i64) -> Option<i128> {
    if digits.len() > 19 {
        return None;
    }
    // 19 digits fit.
    let (mut value, mut point) = (0u64, None);
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at),
            _ => return None,
        }
    }
    let behind = point.map_or(0, |point| digits.len() - 1 - point);
    let has_digit = digits.len() > usize::from(point.is_some());
    let power = power(u32::try_from(scale - behind as i64).ok()?).filter(|_| has_digit)?;
    i128::from(value).checked_mul(power)
}

/// `10^exponent`, when 128 bits hold it.
pub(super) fn power(exponent: u32) -> Option<i128> {
    const POWERS: [i128; 39] = {
        let mut powers = [1; 39];
        let mut at = 1;
        while at < powers.len() {
            powers[at] = powers[at - 1] * 10;
            at += 1;
        }
        powers
    };
    POWERS.get(exponent as usize).copied()
}

/// Digits with at most one point, as `mantissa * 10^power` without trailing zeros. The outer `None`: not such a text; the
/// inner one: more significant digits than 128 bits hold.
fn mantissa(digits: &[u8]) -> Option<(Option<i128>, i64)> {
    let (mut value, mut zeros, mut power) = (Some(0i128), 0u32, 0i64);
    let (mut seen_digit, mut seen_point) = (false, false);
    for byte in digits {
        match byte {
            b'.' if !seen_point => seen_point = true,
            b'0'..=b'9' => {
                seen_digit = true;
                power -= i64::from(seen_point);
                if *byte == b'0' {
                    // Kept back until a digit follows: what stays are trailing zeros, which cost no precision.
                    zeros = zeros.saturating_add(1);
                } else {
                    let digit = i128::from(byte - b'0');
                    value = value.and_then(|value| append(value, zeros, digit));
                    zeros = 0;
                }
            }
            _ => return None,
        }
    }
    seen_digit.then_some((value, power + i64::from(zeros)))
}

/// `value` followed by `zeros` zeros and one digit.
fn append(value: i128, zeros: u32, digit: i128) -> Option<i128> {
    if value == 0 {
        return Some(digit);
    }
    let power = power(zeros.checked_add(1)?)?;
    value.checked_mul(power)?.checked_add(digit)
}

/// The digits behind the `e`, bounded far outside of what can matter.
fn exponent(text: &[u8]) -> Option<i64> {
    const BOUND: i64 = 1_000_000_000_000;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(BOUND));
    Some(if negative { -size } else { size })
}

/// `mantissa * 10^power`. As the mantissa has no trailing zeros, a negative power leaves a fraction.
fn shift(mantissa: i128, power: i64) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    mantissa.checked_mul(self::power(u32::try_from(power).ok()?)?)
}

#[cfg(test)]
mod tests;
