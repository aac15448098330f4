//! Reads the tokens of a JSON text by the grammar of RFC 8259. All methods return `None` if the token is not there.

pub(super) struct JsonReader<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> JsonReader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    /// Reads from after the opening quote to after the closing one. Returns whether the string has escapes.
    pub(super) fn string(&mut self) -> Option<bool> {
        let mut escapes = false;
        loop {
            while let Some(eight) = self.bytes[self.at..].first_chunk::<8>() {
                let special = special(u64::from_le_bytes(*eight));
                if special != 0 {
                    self.at += special.trailing_zeros() as usize / 8;
                    break;
                }
                self.at += 8;
            }
            match self.next()? {
                b'"' => return Some(escapes),
                b'\\' => {
                    escapes = true;
                    self.escape()?;
                }
                0..0x20 => return None,
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => (0..4).all(|_| self.next().is_some_and(|byte| byte.is_ascii_hexdigit())).then_some(()),
            _ => None,
        }
    }

    /// Reads the rest of a number, after its first digit.
    pub(super) fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.take(b'.').is_some() {
            self.digit()?;
            self.digits();
        }
        if self.take(b'e').or_else(|| self.take(b'E')).is_some() {
            let _ = self.take(b'+').or_else(|| self.take(b'-'));
            self.digit()?;
            self.digits();
        }
        Some(())
    }

    fn digit(&mut self) -> Option<()> {
        self.next()?.is_ascii_digit().then_some(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    pub(super) fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn take(&mut self, wanted: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&wanted)).then(|| self.at += 1)
    }

    pub(super) fn rest(&mut self, wanted: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(wanted).then(|| self.at += wanted.len())
    }
}

/// Returns a bit in the first of eight bytes that is a quote, a backslash or a control character. Bits after that one
/// may be wrong (Mycroft's test for a zero byte, 1987).
pub(super) fn special(bytes: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let (quote, backslash) = (bytes ^ (ONES * b'"' as u64), bytes ^ (ONES * b'\\' as u64));
    let below = |bytes: u64, bound: u64| bytes.wrapping_sub(ONES * bound) & !bytes;
    (below(bytes, 0x20) | below(quote, 1) | below(backslash, 1)) & (ONES << 7)
}
