pub mod ledger;
pub mod verify;
