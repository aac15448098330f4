//! The outputs of alerts and sinks in the log: records, each with the number of what it was made of, and who may
//! append.

use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How an output keeps out duplicates. The product's logs check both; here each check has to suffice without the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// An owner that lost the output is refused; whatever the last one appends is accepted.
    Owner,
    /// Records that the output already has are skipped, whoever appends them.
    Numbers,
    /// Both.
    OwnerAndNumbers,
}

pub struct SimulatedOutput<R> {
    records: Vec<(Offset, R)>,
    guard: Guard,
    /// Grows with each takeover.
    owner: u64,
    /// The number after that of the last record.
    next: Option<Offset>,
}

impl<R: Clone> SimulatedOutput<R> {
    pub fn new(guard: Guard) -> Self {
        SimulatedOutput { records: Vec::new(), guard, owner: 0, next: None }
    }

    /// Takes it over: returns the name of the owner, and the number after that of the last record.
    pub fn take(&mut self) -> (u64, Option<Offset>) {
        self.owner += 1;
        (self.owner, self.next)
    }

    /// Whoever took it over last.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Appends all of these records or none. Errors: `Conflict` if it was taken over again.
    pub fn append(&mut self, owner: u64, records: &[(Offset, R)]) -> Result<()> {
        if self.guard != Guard::Numbers && owner != self.owner {
            return Err(Error::conflict("the output was taken over again"));
        }
        for (number, record) in records {
            if self.guard == Guard::Owner || self.next.is_none_or(|next| next <= *number) {
                self.records.push((*number, record.clone()));
                self.next = Some(number.next());
            }
        }
        Ok(())
    }

    pub fn records(&self) -> &[(Offset, R)] {
        &self.records
    }
}

#[test]
fn only_who_took_an_output_over_last_appends_to_it() {
    for guard in [Guard::Owner, Guard::OwnerAndNumbers] {
        let mut output = SimulatedOutput::new(guard);
        let (first, _) = output.take();
        output.append(first, &[(Offset(0), "first")]).unwrap();
        let (second, next) = output.take();
        assert_eq!(next, Some(Offset(1)));
        let refused = output.append(first, &[(Offset(1), "late")]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{guard:?}");
        output.append(second, &[(Offset(1), "second")]).unwrap();
        assert_eq!(output.records(), [(Offset(0), "first"), (Offset(1), "second")], "{guard:?}");
    }
}
