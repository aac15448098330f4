//! An installation over one stream, whose checkpoints a test makes one by one.

use std::sync::Arc;

use basestream_tests::{Harness, now};
use batch::Batch;
use catalog::CatalogState;
use catalog::DefinitionKind::{Stream, View};
use jobs::verify::{Verifier, verify_view};
use serving::{Node, ServingClock};
use storage::{Manifest, read_manifest};
use types::tiles::{Clock, Micros};

pub const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10d', key = 'k')";
pub const WITH_X: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10d', key = 'k')";
pub const DAY: Micros = 86_400_000_000;

pub struct Site {
    pub harness: Harness,
}

impl Site {
    /// With these views over the stream.
    pub async fn with(views: &[(&str, &str)]) -> Site {
        crate::show_logs();
        let harness = Harness::new().await.unwrap();
        let views = views.iter().map(|(name, sql)| (View, *name, *sql));
        harness.define(&[(Stream, "s", STREAM)].into_iter().chain(views).collect::<Vec<_>>()).await.unwrap();
        harness.log.create_topic("s", 2).await.unwrap();
        Site { harness }
    }

    pub async fn append(&self, ids: &[usize]) {
        self.append_by("one", ids).await;
    }

    /// A checkpoint of its own, by this worker, with these events, some of which are older than the others by some
    /// days, and a dead letter.
    pub async fn append_by(&self, worker: &str, ids: &[usize]) {
        let text = |id: &usize| {
            let at = now() - DAY * (*id % 3) as i64;
            format!(r#"{{"id":"e{id:03}","ts":"{}","k":"{}","x":{id}}}"#, engine::events::format_timestamp(at), id % 2)
        };
        let mut records: Vec<_> = ids.iter().map(|id| (Some(format!("{}", id % 2)), text(id))).collect();
        records.push((Some("0".into()), "{broken".into()));
        self.harness.append("s", 2, records).await.unwrap();
        self.harness.commit_at_once(worker, &[("s", "s")]).await.unwrap();
    }

    pub async fn state(&self) -> Arc<CatalogState> {
        self.harness.catalog.state().await.unwrap()
    }

    /// Of a view's published snapshot.
    pub async fn manifest(&self, view: &str) -> Manifest {
        let state = self.state().await;
        let path = &state.snapshot(view, 1).unwrap().manifest;
        read_manifest(&self.harness.storage, state.files.get(path).unwrap()).await.unwrap()
    }

    /// Recomputes in slices of this many events.
    pub fn layer_in_slices(&self, events: usize) -> Batch {
        let mut batch = self.harness.batch_layer(256 << 20);
        batch.settings.events_per_slice = events as u64;
        batch
    }

    pub async fn node(&self) -> Node {
        self.harness.node(ServingClock::Wall, None).await.unwrap()
    }

    /// A view is what plain SQL says.
    pub async fn assert_proven(&self, view: &str) {
        let verifier = Verifier {
            catalog: self.harness.catalog.clone(),
            storage: self.harness.storage.clone(),
            functions: self.harness.functions.clone(),
            memory_limit: 256 << 20,
            temp_dir: None,
        };
        let report = verify_view(&verifier, view, &jobs::served::NodeServed(self.node().await), now()).await.unwrap();
        assert!(report.is_equal(), "{report:?}");
    }
}

/// A clock that is ahead.
pub fn clock(ahead: Micros) -> Clock {
    Arc::new(move || now() + ahead)
}
