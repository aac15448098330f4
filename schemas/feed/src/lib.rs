//! The feed: fresh layers from the process of their worker to nodes in other processes.
//!
//! ```text
//! worker --change--> Fresh --server--> gRPC --following--> Mirror --change--> Fresh --> read views of a node
//! ```
//!
//! A worker's process serves ([`serve`]) what its workers do to their layers: Arrow Flight's `DoGet`, a stream that
//! does not end. A node follows ([`Following`]) each process that the catalog lists and makes the same changes to its
//! own list of layers. Records are decoded and decided once, by their owner; states are encoded once, however many
//! nodes there are.
//!
//! What it promises:
//!
//! - **A node reads what its worker had.** A node has of a worker what a reader in the worker's process had at an
//!   earlier moment, or nothing. A stream begins with a snapshot, continues with every change in order, and is dropped
//!   as a whole if one is missing.
//! - **Never a gap, never twice.** Answers take the layers that adjoin the committed vector of the node's own catalog
//!   state ([`engine::fresh`]); a layer that does not adjoin waits for the state that it belongs to.
//! - **The last owner counts.** Every takeover of a partition has a greater epoch than all before it. Once a node has
//!   heard from an owner, it accepts nothing from earlier ones, even when that owner is gone.
//! - **A lost worker counts no more.** When a stream ends, its layers are dropped, and answers stay at the committed
//!   vector until the node hears from the next owner. A stream without a message for some seconds counts as ended.
//! - **No node slows a worker.** A worker puts changes into bounded queues and never waits. A node that does not keep
//!   up is disconnected, and begins again with a snapshot after a pause.
//! - **Views match by version, states by format.** A node that does not know the format of one of its views' states
//!   reads nothing of that worker.
//!
//! Callers need the right to read the views that they ask for ([`access`]); connections are encrypted where the server
//! has certificates.
//!
//! On the same connections a node learns the decision about one event that it appends, by Arrow Flight's `DoExchange`.
//! First it asks each process that it follows to listen ([`Links::listen`]); then it appends the event and asks all of
//! them for the decision ([`DecisionListener::decision`]), and the process whose workers decide the event answers. If
//! all of them listen, no decision is missed. A process keeps a decision only while somebody waits for it.

mod asking;
mod deciding;
mod encoding;
mod following;
mod layer;
mod message;
mod requests;
mod server;
mod tls;

pub use asking::DecisionListener;
pub use deciding::{AwaitDecision, DecisionSubscription, WorkerDecisions};
pub use following::{Following, Link, LinkState, Links};
pub use layer::Plans;
pub use message::{DecidingSink, DecisionRequest, EventDecision};
pub use requests::Credentials;
pub use server::{FeedListener, Offer, listen, serve};
pub use tls::{ClientCertificate, ClientTls};
