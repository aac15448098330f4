//! The table of pieces in a Parquet file's footer: the length and the CRC-32 of each column chunk.
//!
//! The table is the value of the key `basestream.pieces`: `basestream-pieces[<length>:<crc>,..]`, both in hexadecimal,
//! in file order; the first piece begins at byte 0. It is found by a text search, so that no part of a footer is
//! interpreted before it is checked.

use std::ops::Range;

use bytes::Bytes;
use crc32fast::Hasher;

use crate::known_file::KnownFile;
use crate::known_file::damaged;
use types::Result;

const TABLE_START: &str = "basestream-pieces[";
const TABLE_END: char = ']';

/// Consecutive bytes of a file with their CRC-32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    pub(super) checksum: u32,
}

/// Finds the table of pieces in the footer's bytes: the last text that is a table and fits in the file.
pub(super) fn find_table(file: &KnownFile, footer: &[u8]) -> Result<Vec<Piece>> {
    let body = file.bytes as u64 - footer.len() as u64;
    let marker = TABLE_START.as_bytes();
    let starts = (0..footer.len().saturating_sub(marker.len())).rev().filter(|at| footer[*at..].starts_with(marker));
    let mut tables = starts.filter_map(|at| Piece::parse_table(&footer[at..]));
    tables
        .find(|table| table.last().is_none_or(|piece| piece.range.end <= body))
        .ok_or_else(|| damaged(&file.path, "its table of pieces", "none", TABLE_START))
}

/// Checks that the checksums of the pieces and of the tail combine to the file's.
pub(super) fn check_combined(file: &KnownFile, pieces: &[Piece], tail: &Bytes) -> Result<()> {
    let mut combined = Hasher::new();
    for piece in pieces {
        combined.combine(&Hasher::new_with_initial_len(piece.checksum, piece.range.end - piece.range.start));
    }
    combined.update(tail);
    let found = combined.finalize();
    if found == file.checksum {
        return Ok(());
    }
    Err(damaged(&file.path, "its checksum", format_args!("{found:08x}"), format_args!("{:08x}", file.checksum)))
}

impl Piece {
    /// Formats the table.
    pub(super) fn table(pieces: &[Piece]) -> String {
        let entries: Vec<String> =
            pieces.iter().map(|piece| format!("{:x}:{:x}", piece.range.end - piece.range.start, piece.checksum)).collect();
        format!("{TABLE_START}{}{TABLE_END}", entries.join(","))
    }

    /// Parses a table at the beginning of `bytes`.
    pub(super) fn parse_table(bytes: &[u8]) -> Option<Vec<Piece>> {
        let inside = bytes.strip_prefix(TABLE_START.as_bytes())?;
        let end = inside.iter().position(|byte| *byte == TABLE_END as u8)?;
        let text = std::str::from_utf8(&inside[..end]).ok()?;
        let mut pieces: Vec<Piece> = Vec::new();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (length, checksum) = entry.split_once(':')?;
            let start = pieces.last().map_or(0, |piece| piece.range.end);
            let end = start.checked_add(u64::from_str_radix(length, 16).ok()?)?;
            pieces.push(Piece { range: start..end, checksum: u32::from_str_radix(checksum, 16).ok()? });
        }
        Some(pieces)
    }
}
