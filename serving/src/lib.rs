//! The serving layer: snapshots, segments and fresh layers in; answers out.
//!
//! A [`Node`] follows the catalog. Each query takes one [`ReadView`]: a catalog state with its layers, and a time. A
//! query then passes through the modules, each of which uses only those below it:
//!
//! ```text
//! http                         requests in, JSON and Arrow out
//!   node                       what users of the library hold
//!     sql                      tables over one read view; WHERE on every key becomes a lookup
//!       lookup                 keys --fetch--> rows; its files are its steps
//!         answerer             grouped: merge states | linked: walk edges
//!         archive              states recomputed for a past time
//!         query_runtime        sessions; planners: where queries are planned; admission: whose turn it is;
//!                              query_memory: each query's share;
//!                              spill_folder: where what does not fit goes
//!           meta               what an answer is made from
//!             query_context    one read view, one time
//!         follower             catalog state --copy, layers--> read view
//!           read_view
//!             copy, layers     snapshot buckets, checkpoints' states
//! ```

mod admission;
mod answerer;
mod answers;
mod archive;
mod blocking_pool;
mod copy;
mod follower;
#[cfg(test)]
mod harness;
mod hot_keys;
pub mod http;
pub mod json;
mod kept_keys;
mod layers;
mod limits;
mod lingering;
mod lookup;
mod lookup_times;
mod meta;
mod node;
mod open_alerts;
mod plain_lookup;
mod planners;
mod query_context;
mod query_memory;
mod query_runtime;
mod read_view;
mod recently_used;
mod row_cache;
mod scoring;
mod sockets;
mod spill_folder;
mod sql;
mod status_reporter;
mod value_errors;

pub use answerer::{
    KeyPart, LinkedKeys, ReverseIndex, StateSource, WatchedRows, keys_since, rows_of_keys, rows_of_part, rows_seen, scan, scan_parts,
    watched_parts,
};
pub use archive::ArchiveLayer;
pub use copy::SnapshotCopy;
pub use follower::{FollowSettings, MOST_WAITED, NODE_LEASE, NodeSettings, WantedViews, clean_cache, is_kept};
pub use hot_keys::{HotFrom, HotKeySettings};
pub use layers::{CheckpointIds, LayerPlan, LayerRun, layer_plan, next_merge};
pub use limits::ServingLimits;
pub use lingering::Lingering;
pub use lookup::{AskedPaths, Keys, MAX_KEYS, MAX_PATHS, Response, ViewKeys, ViewRows, ViewsResponse, encoded_keys};
pub use meta::Meta;
pub use node::Node;
pub use query_runtime::CATALOG;
pub use read_view::{BuildingView, Loaded, LoadedView, LostSnapshot, ReadView, ServingClock};
pub use scoring::{EventOutcome, RepeatedEvent, ScoreMeta, Scored, Scorer, StoredEvent};
pub use sockets::{ClientListener, OpenConnection, allowed_connections, tune_socket};
pub use sql::params as parameters;
pub use sql::{
    Described, Params, QueryMeta, QueryResponse, SearchPath, SessionSettings, TableDescription, Turn, check_planned, date_and_zone,
    invalid_as_of, like_pattern, only_queries, out_of_time, parse_as_of, views_read, without_escape,
};
pub use status_reporter::StatusReporter;
pub use value_errors::{OnValueError, ValueError};
