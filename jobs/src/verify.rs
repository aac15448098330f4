//! `verify`: does what is served equal the plain SELECT over the archive?

pub mod plain;
