//! Parses numbers exactly, never through a float.

/// Returns a decimal number times `10^scale`, if that is an integer that fits 128 bits.
///
/// Reads `[+-] digits [. digits] [e [+-] digits]` with at least one digit before or after the point: JSON numbers, and
/// the looser forms in texts (`+5`, `007`, `.5`). The exponent may have any size: `0e999999999` is 0.
pub(super) fn scaled(text: &str, scale: i64) -> Option<i128> {
    let (negative, rest) = signed(text);
    if let Some(magnitude) = short(rest, scale) {
        return Some(if negative { -magnitude } else { magnitude });
    }
    let (mantissa, power) = parts(rest)?;
    let magnitude = shift(mantissa, power.saturating_add(scale))?;
    Some(if negative { -magnitude } else { magnitude })
}

/// The same for a number with finer digits too, rounded down. It may have any number of these.
pub(super) fn floored(text: &str, scale: i64) -> Option<i128> {
    if let Some(exact) = scaled(text, scale) {
        return Some(exact);
    }
    let (negative, rest) = signed(text);
    let (digits, exponent) = without_exponent(rest)?;
    let whole = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    // How many digits, from the first one, are not finer than the scale.
    let kept = exponent.checked_add(scale)?.checked_add(i64::try_from(whole).ok()?)?;
    let kept = usize::try_from(kept.max(0)).ok()?;
    let (mut magnitude, mut seen, mut is_inexact) = (0i128, 0, false);
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'.' if at == whole => continue,
            b'0'..=b'9' if seen < kept => magnitude = magnitude.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?,
            b'0'..=b'9' => is_inexact |= *byte != b'0',
            _ => return None,
        }
        seen += 1;
    }
    // Without a finer digit it would have been exact, if it fitted.
    let value = if negative { -magnitude - i128::from(is_inexact) } else { magnitude };
    (seen > kept).then_some(value)
}

/// Whether a number is negative, and the rest of its text.
fn signed(text: &str) -> (bool, &[u8]) {
    match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// Reads a number without a sign as `mantissa * 10^power`. `None` also for a mantissa that 128 bits cannot hold.
fn parts(text: &[u8]) -> Option<(i128, i64)> {
    let (digits, exponent) = without_exponent(text)?;
    let (mantissa, power) = mantissa(digits)?;
    Some((mantissa?, exponent.saturating_add(power)))
}

/// Cuts a number's text before its exponent, which is 0 if there is none.
fn without_exponent(text: &[u8]) -> Option<(&[u8], i64)> {
    match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => Some((&text[..at], exponent(&text[at + 1..])?)),
        None => Some((text, 0)),
    }
}

/// The fast path for most numbers: at most 19 digits, no exponent, and no finer than the scale. `None` for all other
/// input.
fn short(digits: &[u8], scale: i64) -> Option<i128> {
    if digits.len() > 19 {
        return None;
    }
    // 19 digits fit a u64.
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

/// Returns `10^exponent`, if 128 bits can hold it.
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

/// Reads digits with at most one point as `mantissa * 10^power`, where the mantissa has no trailing zeros. The outer
/// `None`: not such a text. The inner `None`: more significant digits than 128 bits can hold.
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
                    // Held back until another digit follows: trailing zeros cost no precision.
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

/// Appends `zeros` zeros and one digit to `value`.
fn append(value: i128, zeros: u32, digit: i128) -> Option<i128> {
    if value == 0 {
        return Some(digit);
    }
    let power = power(zeros.checked_add(1)?)?;
    value.checked_mul(power)?.checked_add(digit)
}

/// Reads the exponent after the `e`, bounded far beyond what can matter.
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

/// Returns `mantissa * 10^power`. The mantissa has no trailing zeros, so a negative power leaves a fraction.
fn shift(mantissa: i128, power: i64) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    mantissa.checked_mul(self::power(u32::try_from(power).ok()?)?)
}

#[cfg(test)]
mod tests;
