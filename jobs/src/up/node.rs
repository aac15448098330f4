//! A process's node, with what answers its clients, and what runs beside it.

use std::sync::Arc;

use engine::fresh::Fresh;
use event_alerts::StalledAlerts;
use event_sinks::{Sinks, open_node};
use metrics_exporter_prometheus::PrometheusHandle;
use serving::Node;
use serving::http::Protection;
use types::outage::Attempts;
use types::{Result, threads};

use super::answers::{ServiceAnswers, probe_storage};
use super::listeners::Listeners;
use super::parts::{Parts, Stage};
use super::{Ready, lag, layers, metrics, protection, shared};
use crate::installation::Installation;

/// What a node reads beside what is committed.
pub(super) enum NodeReads {
    Committed,
    /// What workers of other processes offer.
    Followed,
    /// That, and what the workers of this process share.
    Shared(Fresh),
}

impl NodeReads {
    fn fresh(self) -> Option<Fresh> {
        match self {
            NodeReads::Committed => None,
            NodeReads::Followed => Some(Fresh::default()),
            NodeReads::Shared(fresh) => Some(fresh),
        }
    }
}

/// A node whose users are answered.
pub(super) struct ServedNode {
    pub(super) ready: Ready,
    pub(super) node: Node,
    /// What makes records of events, also for those who ask for one.
    pub(super) sinks: Arc<Sinks>,
    /// Which alerts are not evaluated.
    pub(super) alerts: StalledAlerts,
    /// Whether the log says where its partitions end. A node without workers answers without it.
    pub(super) log_answers: Attempts,
}

/// Opens the node and starts it, with what answers its clients.
pub(super) async fn start(
    parts: &mut Parts,
    installation: &Installation,
    (listeners, protection): (Listeners, Protection),
    reads: NodeReads,
) -> Result<ServedNode> {
    let recorder = metrics::start(parts);
    probe_storage(installation);
    let reads_itself = matches!(reads, NodeReads::Shared(_));
    let node = installation.node_at_once(reads.fresh()).await?;
    let sinks = installation.sinks(open_node(node.clone()));
    node.attach_scorer(sinks.clone());
    layers::follow(parts, installation, &node);
    protection::follow(parts, Stage::Http, installation, &protection);
    let ready = start_protocols(parts, installation, &node, listeners, &protection, recorder)?;
    let alerts = StalledAlerts::default();
    if reads_itself {
        start_alerts(parts, installation, node.clone(), alerts.clone());
        shared::start(parts, installation, node.clone());
    }
    let log_answers = ServiceAnswers::default().log;
    lag::start(parts, Stage::Node, installation, lag::LagSource::Node(node.clone()), log_answers.clone());
    run_node(parts, node.clone());
    Ok(ServedNode { ready, node, sinks, alerts, log_answers })
}

/// Starts what answers clients, on the addresses that the settings name.
fn start_protocols(
    parts: &mut Parts,
    installation: &Installation,
    node: &Node,
    listeners: Listeners,
    protection: &Protection,
    recorder: Option<PrometheusHandle>,
) -> Result<Ready> {
    let Listeners { http, postgres, flight } = listeners;
    let ready = Ready {
        http: http.address,
        tls: protection.tls.is_some(),
        postgres: postgres.as_ref().map(|bound| bound.address),
        flight: flight.as_ref().map(|bound| bound.address),
    };
    let stopping = parts.token(Stage::Http);
    let task = serving::http::serve(node.clone(), installation.log.clone(), recorder, protection.clone(), http, stopping);
    parts.start(Stage::Http, "http", |_| async move {
        task.await?;
        Ok(())
    });
    if let Some(bound) = postgres {
        let task = postgres_wire::serve(node.clone(), protection, bound, parts.token(Stage::Http))?;
        parts.start(Stage::Http, "postgres", |_| async move { task.await? });
    }
    if let Some(bound) = flight {
        let task = flight_sql::serve(node.clone(), protection, bound, parts.token(Stage::Http));
        parts.start(Stage::Http, "flight", |_| async move { task.await? });
    }
    Ok(ready)
}

/// Loading and copying snapshots may take as long as it likes: queries come first.
fn run_node(parts: &mut Parts, node: Node) {
    parts.start(Stage::Node, "node", |stop| async move { Ok(threads::RUNS.spawn(async move { node.run(stop).await }).await?) });
}

/// An alert is run by one of the processes with workers.
fn start_alerts(parts: &mut Parts, installation: &Installation, node: Node, stalled: StalledAlerts) {
    let alerts = installation.alerts(node, stalled);
    parts.start(Stage::Jobs, "alerts", |stop| async move {
        alerts.run(stop).await;
        Ok(())
    });
}
