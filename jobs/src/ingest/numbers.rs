//! How a CSV file writes its numbers: which marks separate thousands, and which one decimals.

use std::fmt;
use std::str::FromStr;

use types::{Error, Result};

/// A way to write numbers, named by an example. Thousands may be separated or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberFormat {
    /// `1234.56`
    Plain,
    /// `1,234.56`
    CommaPoint,
    /// `1.234,56`
    PointComma,
    /// `1 234,56`, also with a no-break space
    SpaceComma,
    /// `1'234.56`, also with `’`
    ApostrophePoint,
}

use NumberFormat::{ApostrophePoint, CommaPoint, Plain, PointComma, SpaceComma};

impl NumberFormat {
    pub const ALL: [NumberFormat; 5] = [Plain, CommaPoint, PointComma, SpaceComma, ApostrophePoint];

    /// A number in this format.
    pub fn example(self) -> &'static str {
        match self {
            Plain => "1234.56",
            CommaPoint => "1,234.56",
            PointComma => "1.234,56",
            SpaceComma => "1 234,56",
            ApostrophePoint => "1'234.56",
        }
    }

    /// The marks between thousands.
    fn separators(self) -> &'static [char] {
        match self {
            Plain => &[],
            CommaPoint => &[','],
            PointComma => &['.'],
            SpaceComma => &[' ', '\u{a0}', '\u{202f}'],
            ApostrophePoint => &['\'', '’'],
        }
    }

    pub(super) fn decimal_mark(self) -> char {
        match self {
            Plain | CommaPoint | ApostrophePoint => '.',
            PointComma | SpaceComma => ',',
        }
    }

    /// Returns a number in this format as a plain one, with all its digits; `None` for any other text.
    pub(super) fn plain(self, text: &str) -> Option<String> {
        Some(self.parts(text)?.plain())
    }

    pub(super) fn parts(self, text: &str) -> Option<NumberParts<'_>> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (text, None),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = match unsigned.split_once(self.decimal_mark()) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (unsigned, None),
        };
        let groups: Vec<&str> = whole.split(self.separators()).collect();
        let is_whole = match groups.as_slice() {
            [first, rest @ ..] if !rest.is_empty() => {
                (1..=3).contains(&first.len()) && !first.starts_with('0') && rest.iter().all(|group| group.len() == 3)
            }
            _ => true,
        };
        let is_exponent = |exponent: &str| is_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
        let is_number =
            is_whole && groups.iter().all(|group| is_digits(group)) && fraction.is_none_or(is_digits) && exponent.is_none_or(is_exponent);
        is_number.then(|| NumberParts { is_negative: mantissa.starts_with('-'), groups, fraction, exponent })
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number, taken apart.
pub(super) struct NumberParts<'a> {
    is_negative: bool,
    pub(super) groups: Vec<&'a str>,
    pub(super) fraction: Option<&'a str>,
    exponent: Option<&'a str>,
}

impl NumberParts<'_> {
    fn plain(&self) -> String {
        let mut text = if self.is_negative { "-".to_owned() } else { String::new() };
        text.extend(self.groups.iter().copied());
        for (mark, digits) in [('.', self.fraction), ('e', self.exponent)] {
            if let Some(digits) = digits {
                text.push(mark);
                text.push_str(digits);
            }
        }
        text
    }
}

impl fmt::Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.example())
    }
}

impl FromStr for NumberFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.example() == text).ok_or_else(|| {
            let examples: Vec<String> = Self::ALL.iter().map(|format| format!("\"{format}\"")).collect();
            Error::input(format!("found \"{text}\", expected one of {}", examples.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests;
