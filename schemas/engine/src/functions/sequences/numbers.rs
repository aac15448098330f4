//! Numbers of variable length, as states hold them: seven bits a byte, the lowest first (LEB128). Numbers with a sign
//! are stored with it in their lowest bit.

use datafusion::common::{Result, exec_err};

/// The most bytes of a number.
const LONGEST: usize = 10;

pub(super) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(super) fn push_signed(bytes: &mut Vec<u8>, number: i64) {
    push(bytes, (number << 1) as u64 ^ (number >> 63) as u64);
}

/// Reads what was pushed. Anything else is refused.
#[derive(Debug)]
pub(super) struct NumberReader<'b>(pub(super) &'b [u8]);

impl<'b> NumberReader<'b> {
    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for (place, byte) in self.0.iter().take(LONGEST).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * place);
            if shifted >> (7 * place) != bits {
                break;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(number);
            }
        }
        exec_err!("a state of events has no number where one is expected: it is damaged")
    }

    pub(super) fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn bytes(&mut self, count: u64) -> Result<&'b [u8]> {
        match usize::try_from(count).ok().and_then(|count| self.0.split_at_checked(count)) {
            Some((bytes, rest)) => {
                self.0 = rest;
                Ok(bytes)
            }
            None => exec_err!("a state of events ends after {} of {count} bytes: it is damaged", self.0.len()),
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            more => exec_err!("a state of events has {more} bytes after its end: it is damaged"),
        }
    }
}

#[cfg(test)]
mod tests;
