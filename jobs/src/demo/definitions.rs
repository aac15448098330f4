//! The demo's definitions: those of `examples/payments`, embedded in the binary.

use std::path::PathBuf;

use definitions::Definitions;
use definitions::parse::parse_definitions;
use types::Result;

/// Files and their contents, relative to a project's folder.
pub const SOURCES: [(&str, &str); 9] = [
    ("sinks/scored_transactions.sql", include_str!("../../../examples/payments/sinks/scored_transactions.sql")),
    ("streams/create_account.sql", include_str!("../../../examples/payments/streams/create_account.sql")),
    ("streams/login.sql", include_str!("../../../examples/payments/streams/login.sql")),
    ("streams/transactions.sql", include_str!("../../../examples/payments/streams/transactions.sql")),
    ("views/device_links.sql", include_str!("../../../examples/payments/views/device_links.sql")),
    ("views/device_velocity.sql", include_str!("../../../examples/payments/views/device_velocity.sql")),
    ("views/ip_reputation.sql", include_str!("../../../examples/payments/views/ip_reputation.sql")),
    ("views/ring_candidates.sql", include_str!("../../../examples/payments/views/ring_candidates.sql")),
    ("views/user_profile.sql", include_str!("../../../examples/payments/views/user_profile.sql")),
];

/// Returns the parsed definitions.
pub fn definitions() -> Result<Definitions> {
    let sources: Vec<(Option<PathBuf>, String)> =
        SOURCES.iter().map(|(file, text)| (Some(PathBuf::from(file)), (*text).to_owned())).collect();
    let (definitions, diagnostics) = parse_definitions(&sources);
    diagnostics.into_result()?;
    Ok(definitions)
}

#[cfg(test)]
mod tests;
