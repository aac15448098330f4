//! The installation of a soak: a stream of payments and five views, none of which looks back further than five minutes:
//! what grows until windows are full is level within the first ten.

use std::path::{Path, PathBuf};

use definitions::parse::parse_definitions;
use definitions::settings::{FILE_NAME, Settings, Variables};
use engine::functions::Functions;
use jobs::Installation;
use types::Result;
use types::tiles::Micros;

use crate::asking;
use crate::payments::{Kept, Payments, Topic, is_repeat, stream_sql};

/// The folders and files whose sizes are sampled.
pub(super) const STORAGE: &str = "storage";
pub(super) const CATALOG: &str = "catalog.db";
pub(super) const LOG: &str = "log";
pub(super) const CACHE: &str = "cache";

const VIEWS: &str = "
CREATE VIEW account_velocity WITH (windows = '1m, 3m, 5m', every = '1m') AS
SELECT account_id, count(*) AS events, sum(amount) AS amount, avg(amount) AS mean, max(ts) AS last FROM payments GROUP BY account_id;

CREATE VIEW merchant_sales WITH (windows = '3m', every = '1m') AS
SELECT merchant_id, count(*) AS events, sum(amount) AS amount, count(DISTINCT account_id) AS accounts FROM payments GROUP BY merchant_id;

CREATE VIEW declined WITH (windows = '5m', every = '1m') AS
SELECT account_id, count(*) AS events, array_agg(merchant_id ORDER BY ts) AS merchants FROM payments WHERE status = 'declined'
GROUP BY account_id;

CREATE VIEW by_country WITH (windows = '5m', every = '1m') AS
SELECT country, channel, count(*) AS events, sum(amount) AS amount FROM payments GROUP BY country, channel;

CREATE VIEW shared_merchants WITH (windows = '5m', every = '1m') AS
SELECT a.account_id, count(DISTINCT b.account_id) AS accounts FROM payments a JOIN payments b ON a.merchant_id = b.merchant_id
WHERE a.status = 'declined' AND b.status = 'declined' AND a.account_id <> b.account_id GROUP BY a.account_id;
";

/// How many events of the first `records` payments are in the window of five minutes before the last one.
pub(super) fn expected(payments: Payments, records: u64) -> u64 {
    const WINDOW: Micros = 300_000_000;
    const HOP: Micros = 1_000_000;
    let Some(last) = records.checked_sub(1) else { return 0 };
    let newest = payments.payment(last).time().max(payments.payment(last.saturating_sub(1)).time());
    let from = (newest - WINDOW).div_euclid(HOP) * HOP;
    (0..records).filter(|record| !is_repeat(*record) && payments.payment(*record).time() >= from).count() as u64
}

#[derive(Debug)]
pub(super) struct Site {
    folder: PathBuf,
    pub(super) http: String,
}

impl Site {
    /// Creates the installation in a folder that has the log, and applies its definitions.
    pub(super) async fn create(folder: &Path, topic: &Topic) -> Result<Site> {
        let http = format!("127.0.0.1:{}", basestream_tests::process::free_port()?);
        let at = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "[storage]\nurl = \"file://{}\"\n[catalog]\nurl = \"sqlite://{}\"\n[log]\nurl = \"{}\"\nretention = \"2m\"\n\
             [archive]\ncompact_after = \"1m\"\n[serving]\nhttp = \"{http}\"\nclock = \"event\"\ncache_dir = \"{}\"\n",
            at(STORAGE),
            at(CATALOG),
            topic.url,
            at(CACHE),
        );
        let stream = stream_sql(&topic.name, Kept::EVERYTHING).replace("keep_raw = true", "retention = '10m'");
        let definitions = [("streams/payments.sql", &*stream), ("views/views.sql", VIEWS)];
        for (path, text) in definitions.into_iter().chain([(FILE_NAME, &*config)]) {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, text)?;
        }
        let (parsed, mistakes) = parse_definitions(&definitions.map(|(path, text)| (Some(path.into()), text.to_owned())));
        mistakes.into_result()?;
        let site = Site { folder: folder.to_path_buf(), http };
        let installation = site.open().await?;
        installation.apply(&parsed, false).await?;
        installation.close().await;
        Ok(site)
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    pub(super) async fn open(&self) -> Result<Installation> {
        let settings = Settings::load(&self.config(), &Variables::from_process())?;
        Installation::open(&settings, Functions::standard()).await
    }

    /// How many events of the last five minutes are counted.
    pub(super) async fn counted(&self) -> Result<u64> {
        asking::sql_number(&self.http, "SELECT sum(events_5m) AS number FROM by_country").await
    }
}
