//! Arrow Flight SQL.
