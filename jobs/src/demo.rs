//! demo
mod definitions;
pub mod traffic;
