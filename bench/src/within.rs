//! Runs the layers of `up` within this process: the node sees the speed layer's micro-batches at once.

use std::time::Instant;

use engine::fresh::Fresh;
use jobs::Installation;
use serving::Node;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;

pub struct Within {
    pub node: Node,
    stop: CancellationToken,
    following: JoinHandle<()>,
    working: JoinHandle<Result<()>>,
}

impl Within {
    pub async fn start(installation: &Installation) -> Result<Within> {
        let (stop, fresh) = (CancellationToken::new(), Fresh::default());
        let node = installation.node(Some(fresh.clone())).await?;
        let following = tokio::spawn({
            let (node, stop) = (node.clone(), stop.clone());
            async move { node.run(stop).await }
        });
        let speed = installation.speed(&format!("{}-bench", installation.worker), Some(fresh));
        let working = tokio::spawn({
            let stop = stop.clone();
            async move { speed.run(stop).await }
        });
        Ok(Within { node, stop, following, working })
    }

    /// Returns the number of events that answers count now, and the time of that answer.
    pub fn counted(&self) -> Result<(u64, Instant)> {
        let events = self.node.read_view()?.vector.iter().map(|(_, offset)| offset.0 as u64).sum();
        Ok((events, Instant::now()))
    }

    /// Returns after everything is committed.
    pub async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.working.await??;
        self.following.await?;
        Ok(())
    }
}
