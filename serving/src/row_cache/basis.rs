//! What a cached row was made from, so that a lookup can tell whether it is still valid. Layers never change: merging
//! the same rows of the same layers, in the same order and over the same spans of time, gives the same row.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef};
use types::tiles::Span;

/// What a row would be made from now.
pub(crate) struct RowInputs<'a> {
    /// The spans of all ranges that its columns need.
    pub(crate) spans: Vec<Span>,
    /// In the order of the layers.
    pub(crate) parts: Vec<Part<'a>>,
}

/// One of the things that a row is made from.
pub(crate) enum Part<'a> {
    /// Rows of a batch. The batch is identified by one of its columns that every merge makes anew.
    Rows { column: &'a ArrayRef, rows: Range<usize> },
    /// A whole snapshot or layer.
    Whole(Arc<dyn Any + Send + Sync>),
}

/// Whether a cached row is still valid.
pub(crate) enum RowValidity {
    /// It is the row that would be made now.
    Same,
    /// A new row must be made, from this.
    New(RowBasis),
    /// The row must not be cached: it is not known for how long it is valid.
    NotCacheable,
}

/// What a cached row was made from. It keeps no layer alive, but no other value gets the address of one of its parts
/// while it exists.
#[derive(Debug)]
pub(crate) struct RowBasis {
    spans: Vec<Span>,
    parts: Vec<KnownPart>,
}

#[derive(Debug)]
struct KnownPart {
    address: PartAddress,
    rows: Range<usize>,
}

#[derive(Debug)]
enum PartAddress {
    Column(Weak<dyn Array>),
    Whole(Weak<dyn Any + Send + Sync>),
}

/// What a weak reference keeps of a layer that was dropped.
const WEAK_BYTES: usize = 256;

impl RowInputs<'_> {
    /// Compares them with what the known row was made from.
    pub(crate) fn compared(self, known: Option<&RowBasis>) -> RowValidity {
        match known.is_some_and(|known| known.is(&self)) {
            true => RowValidity::Same,
            false => RowValidity::New(RowBasis::from_inputs(self)),
        }
    }
}

impl RowBasis {
    fn from_inputs(inputs: RowInputs<'_>) -> RowBasis {
        let known = |part: Part<'_>| match part {
            Part::Rows { column, rows } => KnownPart { address: PartAddress::Column(Arc::downgrade(column)), rows },
            Part::Whole(whole) => KnownPart { address: PartAddress::Whole(Arc::downgrade(&whole)), rows: 0..0 },
        };
        RowBasis { spans: inputs.spans, parts: inputs.parts.into_iter().map(known).collect() }
    }

    /// Whether the row that was made from this is the row that would be made now.
    fn is(&self, inputs: &RowInputs<'_>) -> bool {
        let is_same = |(known, part): (&KnownPart, &Part<'_>)| match (&known.address, part) {
            (PartAddress::Column(known_column), Part::Rows { column, rows }) => {
                std::ptr::addr_eq(known_column.as_ptr(), Arc::as_ptr(column)) && known.rows == *rows
            }
            (PartAddress::Whole(known), Part::Whole(whole)) => std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(whole)),
            _ => false,
        };
        self.spans == inputs.spans && self.parts.len() == inputs.parts.len() && self.parts.iter().zip(&inputs.parts).all(is_same)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.spans) + self.parts.len() * (size_of::<KnownPart>() + WEAK_BYTES)
    }
}
