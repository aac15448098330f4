//! Compares scans, lookups and the ledger with the plain join.

use super::*;

impl Installation {
    pub(super) async fn check(&self) {
        self.check_scan(None).await;
        self.check_lookups().await;
        self.check_materialised().await;
    }

    /// Checks that the rows of the last run's join are the plain SELECT as of its cut and time, whichever rows it
    /// carried over.
    async fn check_materialised(&self) {
        let read_view = match self.node.read_view() {
            Ok(read_view) => read_view,
            Err(error) => return self.is_not_there_yet(&error),
        };
        let snapshot = match read_view.view("v") {
            Ok(loaded) => loaded.snapshot.clone(),
            Err(error) => return self.is_not_there_yet(&error),
        };
        let Some(snapshot) = snapshot else { return };
        let (manifest, asked) = (&snapshot.manifest, self.node.query("SELECT * FROM v__batch", Vec::new()).await);
        let asked = asked.unwrap_or_else(|error| self.fail(&error));
        let meta = asked.meta.clone();
        let batches = asked.collect().await.unwrap_or_else(|error| self.fail(&error));
        let t = manifest.joined.as_ref().unwrap_or_else(|| self.fail(&"a run of a linked view did not join")).t;
        let (expected, keys) = self.expected_at(manifest.version, &manifest.cut, t, false).await;
        self.compare(&format!("the join of {}", manifest.cut), &rows_of(&batches, None, keys), &expected, &meta);
    }

    /// Checks that the node's answer is the plain SELECT over the accepted events before the answer's vector.
    pub(super) async fn check_scan(&self, as_of: Option<Micros>) {
        let prefix = as_of.map(|t| format!("SET as_of = '{}'; ", format_timestamp(t))).unwrap_or_default();
        let asked = self.node.query(&format!("{prefix}SELECT * FROM v"), Vec::new()).await;
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return self.is_not_there_yet(&error),
        };
        let meta = asked.meta.clone();
        let batches = asked.collect().await.unwrap_or_else(|error| self.fail(&error));
        let (expected, keys) = self.expected(&meta, as_of.is_some()).await;
        let served = rows_of(&batches, None, keys);
        self.compare("a scan", &served, &expected, &meta);
    }

    /// Looks up each key separately, including one that does not exist.
    async fn check_lookups(&self) {
        let read_view = match self.node.read_view() {
            Ok(read_view) => read_view,
            Err(error) => return self.is_not_there_yet(&error),
        };
        let loaded = match read_view.view("v") {
            Ok(loaded) => loaded,
            Err(error) => return self.is_not_there_yet(&error),
        };
        let fields: Vec<_> = loaded.live.plan.columns.iter().map(|column| column.field.clone()).collect();
        let keys = self.versions[loaded.live.version as usize - 1].1;
        let (vector, t) = (read_view.vector.clone(), read_view.t_of(&loaded.live));
        let (expected, _) = self.expected_at(loaded.live.version, &vector, t, false).await;
        let nowhere = vec!["987654".to_owned(); keys];
        for key in expected.keys().take(LOOKED_UP).chain([&nowhere]) {
            let value = |index: usize| match (key[index].as_str(), fields[index].data_type().is_numeric()) {
                ("∅", _) => serde_json::Value::Null,
                (number, true) => serde_json::Value::from(number.parse::<i64>().unwrap()),
                (text, false) => serde_json::Value::from(text),
            };
            let asked = (0..keys).map(|index| (fields[index].name().clone(), value(index))).collect();
            let found = self.node.lookup("v", Keys::Json(vec![asked]), None).await.unwrap_or_else(|error| self.fail(&error));
            if found.meta.cut != vector || found.meta.as_of != t {
                return;
            }
            let there = BooleanArray::from(found.found.clone());
            let rows = arrow::compute::filter_record_batch(&found.rows, &there).unwrap();
            let served = rows_of(&[rows], None, keys);
            let expected: Rows = expected.iter().filter(|(known, _)| *known == key).map(|(key, row)| (key.clone(), row.clone())).collect();
            self.compare(&format!("a lookup of {key:?}"), &served, &expected, &found.meta);
        }
    }

    /// The dead worker's layers do not have the new version: an error rather than a wrong answer. Any other error is a
    /// failure.
    fn is_not_there_yet(&self, error: &types::Error) {
        if error.kind() != ErrorKind::Unavailable || self.versions.len() == 1 {
            self.fail(error);
        }
    }

    fn compare(&self, how: &str, served: &Rows, expected: &Rows, meta: &Meta) {
        let about = || format!("{how} at {} as of {}\n{}", meta.cut, format_timestamp(meta.as_of), self.about());
        assert_eq!(served.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "keys of {}", about());
        let all: Vec<&Placed> = self.accepted.iter().collect();
        for (key, columns) in expected {
            assert_eq!(columns.len(), served[key].len(), "{}", about());
            for ((name, expected), (served_name, served)) in columns.iter().zip(&served[key]) {
                assert_eq!(name, served_name, "{}", about());
                assert!(same(served, expected, scale(&all)), "{name} of {key:?}: served {served}, plain {expected}, {}", about());
            }
        }
    }

    async fn expected(&self, meta: &Meta, as_of: bool) -> (Rows, usize) {
        let version = meta.versions.get("v").copied().unwrap_or(1);
        self.expected_at(version, &meta.cut, meta.as_of, as_of).await
    }

    async fn expected_at(&self, version: u32, vector: &Vector, t: Micros, as_of: bool) -> (Rows, usize) {
        let (sql, keys) = &self.versions[version as usize - 1];
        let is_before = |placed: &&Placed| placed.offset < vector.get(&PartitionId::new(NAMES[placed.stream], placed.partition)).0;
        let before: Vec<&Placed> = self.accepted.iter().filter(is_before).collect();
        let (plain, session) = plain_query(sql, &before, Moment { t, as_of });
        (rows_of(&answer(&plain.sql, &session).await, None, *keys), *keys)
    }

    /// Checks that every archived event is filtered, expired or in the edges that are kept.
    pub(super) async fn check_ledger(&self) {
        let state = self.harness.catalog.state().await.unwrap();
        let registry = Registry::load(&state, &self.harness.functions).await.unwrap();
        let Some(live) = registry.served("v") else { return };
        let verifier = Verifier {
            catalog: self.harness.catalog.clone(),
            storage: self.harness.storage.clone(),
            functions: self.harness.functions.clone(),
            memory_limit: 64 << 20,
            temp_dir: None,
        };
        let read_view = self.node.read_view().unwrap();
        let of_run = read_view.view("v").ok().and_then(|loaded| loaded.snapshot.as_ref()?.manifest.joined.as_ref().map(|joined| joined.t));
        let t = read_view.t_of(live).max(of_run.unwrap_or(Micros::MIN));
        let line = jobs::ledger::view(&verifier, &state, live, t).await.unwrap_or_else(|error| self.fail(&error));
        assert!(line.balanced, "{line:?}\n{}", self.about());
    }
}
