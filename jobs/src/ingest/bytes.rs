//! An input as bytes: opened, decompressed where it is compressed, and counted.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use types::{Error, Result};

use crate::input_file::open_input_file;

const BUFFER_BYTES: usize = 256 << 10;

/// A byte stream, and what is known about it.
pub(super) struct ByteSource {
    pub(super) reader: BufReader<Box<dyn Read + Send>>,
    /// Bytes read of the stored (possibly compressed) input.
    pub(super) bytes_done: Arc<AtomicU64>,
    /// The input may be written right now, by a person or a program.
    pub(super) interactive: bool,
}

impl ByteSource {
    pub(super) fn file(path: &Path) -> Result<ByteSource> {
        let named_gz = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        Ok(ByteSource::unpacked(Box::new(open_input_file(path)?), named_gz, false))
    }

    pub(super) fn stdin() -> ByteSource {
        ByteSource::unpacked(Box::new(std::io::stdin()), false, true)
    }

    fn unpacked(raw: Box<dyn Read + Send>, named_gz: bool, interactive: bool) -> ByteSource {
        let bytes_done = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: raw, count: bytes_done.clone() };
        let raw = Some(BufReader::with_capacity(BUFFER_BYTES, counted));
        let reader: Box<dyn Read + Send> = Box::new(Unpacked { raw, named_gz, reader: Box::new(std::io::empty()) });
        ByteSource { reader: BufReader::with_capacity(BUFFER_BYTES, reader), bytes_done, interactive }
    }
}

/// Returns true if the bytes begin like gzip.
pub(super) fn is_packed(start: &[u8]) -> bool {
    // No text begins with the first of the two bytes alone.
    matches!(start, [0x1f] | [0x1f, 0x8b, ..])
}

/// The error for an input that cannot be read after this many lines.
pub(super) fn broken(lines: u64, error: std::io::Error) -> Error {
    let broken = Error::input(format!("the input cannot be read past line {lines}"));
    let broken = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => broken.with("help", "the compressed file is truncated: fetch it again"),
        std::io::ErrorKind::InvalidData => {
            broken.with("help", "expected UTF-8: convert most other encodings with `iconv -f WINDOWS-1252 -t UTF-8`")
        }
        _ => broken,
    };
    broken.caused_by(error)
}

/// Decompresses input that begins like gzip, whatever its name. It looks at the first read: before that no bytes may be
/// available.
struct Unpacked<R> {
    /// The input before the first read.
    raw: Option<BufReader<R>>,
    /// The name ends in `.gz`: an empty file is truncated.
    named_gz: bool,
    reader: Box<dyn Read + Send>,
}

impl<R: Read + Send + 'static> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Some(raw) = &mut self.raw {
            let start = raw.fill_buf()?;
            let packed = is_packed(start) || (start.is_empty() && self.named_gz);
            if let Some(raw) = self.raw.take() {
                self.reader = if packed { Box::new(MultiGzDecoder::new(raw)) } else { Box::new(raw) };
            }
        }
        self.reader.read(buffer)
    }
}

/// Counts the bytes read through it.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
