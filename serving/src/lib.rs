//! The serving layer: snapshots, segments and fresh layers in; answers out.
//!
//! A [`Node`] follows the catalog. Each query takes one [`Stand`]: a catalog state with its layers, and a time. A lookup merges the
//! few rows of its keys, a scan does the same part by part; both are [`engine::states::answer`], and for views over a
//! JOIN a walk. SQL ([`Node::query`]) and [`http`] ask the same way, and every answer says what it stands on ([`Meta`]).
//!
//! ```text
//! snapshot --copy, map--+
//! segments --layers-----+--> stand --lookup, scan--> rows + meta --sql, http--> answers
//! fresh layers ---------+
//! ```

mod archive;
mod aside;
mod ask;
mod copy;
mod edges;
pub mod http;
pub mod json;
#[cfg(test)]
mod lab;
mod layers;
mod lookup;
mod meta;
mod node;
mod sql;
mod stand;

pub use archive::ArchiveLayer;
pub use ask::{AskedPaths, Keys, MAX_KEYS, MAX_PATHS, Response};
pub use copy::SnapshotCopy;
pub use layers::{Checkpoints, LayerPlan, LayerRun, after_cut, layer_plan, next_merge};
pub use lookup::{Answers, Source, encode_keys, scan, scan_parts};
pub use meta::Meta;
pub use node::{Clock, Node, NodeSettings, clean_cache};
pub use sql::{QueryResponse, parse_as_of};
pub use stand::{Loaded, LoadedView, LostSnapshot, ServingClock, Stand};
pub use types::sql_types::sql_name;
