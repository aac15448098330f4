//! The fuzz targets. Each checks its results against something they must agree with, not only that nothing panics.
//!
//! | target | bytes | what must hold |
//! | --- | --- | --- |
//! | `events` | one byte for the stream, then a record's value | what decodes is valid JSON, becomes a valid batch, and keeps its id |
//! | `definitions` | a definitions file | places are inside the text; each accepted definition parses to the same from its own text |
//! | `lookups` | a line with the path, then a body | no response is a defect (5xx) |
//! | `sql` | SQL, or from the first `{` on a body of `POST /v1/sql` | no panic, no stack overflow; a query that is planned has a schema |

pub mod definitions;
pub mod events;
pub mod installation;
pub mod lookups;
pub mod sql;
