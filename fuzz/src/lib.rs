//! What the fuzz targets do with their bytes. Each holds what it fuzzes against something it must agree with: no panic alone is little.
//!
//! | target | bytes | what must hold |
//! | --- | --- | --- |
//! | `events` | one byte for the stream, then a record's value | what decodes is valid JSON, becomes a valid batch, and keeps its id |
//! | `definitions` | a definitions file | places are inside the text; what is kept parses again from its own text, alike |
//! | `lookups` | a line with the path, then a body | no answer is a defect (5xx) |
//! | `sql` | SQL, or from the first `{` on a body of `POST /v1/sql` | no panic, no stack without end; a query that is planned has a schema |

pub mod definitions;
pub mod events;
pub mod installation;
pub mod lookups;
pub mod sql;
