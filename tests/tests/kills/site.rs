//! The installation under test: two streams, eight views, three of them linked, a sink, two alerts, one of them over
//! links, and settings that make everything happen often.

use std::path::Path;
use std::time::Duration;

use basestream_tests::process::{Project, Urls, free_port};
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use jobs::Installation;
use types::Result;

use crate::alerts::{BUSY, MET, RING};
use crate::decisions::{SCORED, SEEN};

/// The views, in the order in which they are queried.
pub const VIEWS: [&str; 6] = ["totals", "devices", "users", "activity", "links", "shared"];
/// The same, and those that only the sink and the alerts read: until each of them has a snapshot, the collector deletes
/// no states.
pub const ALL_VIEWS: [&str; 8] = ["totals", "devices", "users", "activity", "links", "shared", "seen", "met"];
/// The linked ones that are queried, each with the table of its last run's join.
pub const LINKED: [(&str, &str); 2] = [("links", "links__batch"), ("shared", "shared__batch")];
/// The time after which a Kafka group notices that a member died.
pub const SESSION_TIMEOUT: Duration = Duration::from_millis(1_500);
pub const STREAMS: [&str; 2] = ["payments", "clicks"];

const PAYMENTS: &str = "CREATE STREAM payments (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL,
  device_id TEXT,
  user_id   TEXT NOT NULL,
  amount    DECIMAL(18,2) NOT NULL,
  status    TEXT NOT NULL
) WITH (topic = 'TOPIC_payments', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '20s', key = 'device_id');\n";

const CLICKS: &str = "CREATE STREAM clicks (
  ts      TIMESTAMPTZ NOT NULL OPTIONS (path = '$.at', unit = 'ms'),
  user_id TEXT NOT NULL,
  page    BIGINT NOT NULL
) WITH (topic = 'TOPIC_clicks', format = 'json', event_time = 'ts', key = 'user_id');\n";

const TOTALS: &str = "CREATE VIEW totals WITH (every = '1s') AS
SELECT count(*) AS payments, sum(amount) AS amount, count(DISTINCT user_id) AS users, max(ts) AS newest FROM payments;\n";

const DEVICES: &str = "CREATE VIEW devices WITH (windows = '1m, 1h', every = '1s') AS
SELECT device_id,
       count(*)                AS payments,
       sum(amount)             AS amount,
       count(DISTINCT user_id) AS users,
       max(ts)  FILTER (WHERE within(ts, 'all'))      AS last_seen,
       count(*) FILTER (WHERE within(ts, '1h', '1m')) AS earlier
FROM payments WHERE status = 'ok' GROUP BY device_id;\n";

const USERS: &str = "CREATE VIEW users WITH (windows = '10s, 1m') AS
SELECT user_id, count(*) AS clicks, array_agg(page ORDER BY ts) AS pages FROM clicks GROUP BY user_id;\n";

const ACTIVITY: &str = "CREATE VIEW activity WITH (every = '2s') AS
SELECT user_id, count(*) AS events
FROM (SELECT ts, user_id FROM payments UNION ALL SELECT ts, user_id FROM clicks) e GROUP BY user_id;\n";

/// A join of both streams, with multiplicities: a row per edge and tile.
const LINKS: &str = "CREATE VIEW links WITH (windows = '1m, 1h', every = '4s') AS
SELECT p.device_id,
       count(*)                  AS pairs,
       sum(c.page)               AS pages,
       count(DISTINCT c.page)    AS different,
       count(DISTINCT p.user_id) AS users
FROM payments p JOIN clicks c ON p.user_id = c.user_id WHERE p.status = 'ok' AND c.page < 40 GROUP BY p.device_id;\n";

/// A join of a stream with itself, with a window for each side: when each edge was last seen.
const SHARED: &str = "CREATE VIEW shared WITH (every = '4s') AS
SELECT mine.device_id,
       count(DISTINCT theirs.device_id) FILTER (WHERE theirs.device_id <> mine.device_id AND within(mine.ts, '1h') AND within(theirs.ts, '1m')) AS devices,
       count(DISTINCT mine.user_id)     FILTER (WHERE within(mine.ts, '1h') AND within(theirs.ts, '1m')) AS users
FROM payments mine JOIN payments theirs ON mine.user_id = theirs.user_id WHERE theirs.status = 'declined' GROUP BY mine.device_id;\n";

/// One installation on disk, with its services.
pub struct Site {
    pub project: Project,
    pub urls: Urls,
    pub topic: String,
    /// The workers' consumer group.
    group: String,
    pub is_kafka: bool,
}

impl Site {
    pub fn new(urls: Urls, topic: &str) -> Result<Site> {
        Self::with(urls, topic, "200ms", "kills")
    }

    /// Another group has its own positions: with its own catalog it reads the log from the beginning.
    pub fn with(urls: Urls, topic: &str, checkpoint_interval: &str, group: &str) -> Result<Site> {
        let is_kafka = urls.log.starts_with("kafka");
        let http = format!("127.0.0.1:{}", free_port()?);
        let timeout_ms = SESSION_TIMEOUT.as_millis();
        let of_kafka = format!("[log.properties]\n\"session.timeout.ms\" = {timeout_ms}\n\"heartbeat.interval.ms\" = 300\n");
        let log = if is_kafka { of_kafka } else { String::new() };
        let settings = format!(
            "[storage]\nurl = \"{}\"\n[catalog]\nurl = \"{}\"\n[speed]\ngroup = \"{group}_{topic}\"\ncheckpoint_interval = \"{checkpoint_interval}\"\nmax_future = \"10s\"\n\
             [archive]\ncompact_after = \"1s\"\n[batch]\nlease = \"2s\"\nslice_events = 200\ncollect_every = \"100ms\"\n\
             [serving]\nhttp = \"{http}\"\nclock = \"event\"\nlease = \"1s\"\ncache_dir = \"cache\"\n[log]\nurl = \"{}\"\npartitions = 3\n{log}",
            urls.storage, urls.catalog, urls.log
        );
        let with_topic = |text: &str| text.replace("TOPIC", topic).replace("GROUP", group);
        let files = [
            ("basestream.toml", settings),
            ("streams/payments.sql", with_topic(PAYMENTS)),
            ("streams/clicks.sql", with_topic(CLICKS)),
            ("views/totals.sql", TOTALS.to_owned()),
            ("views/devices.sql", DEVICES.to_owned()),
            ("views/users.sql", USERS.to_owned()),
            ("views/activity.sql", ACTIVITY.to_owned()),
            ("views/links.sql", LINKS.to_owned()),
            ("views/shared.sql", SHARED.to_owned()),
            ("views/seen.sql", SEEN.to_owned()),
            ("views/met.sql", MET.to_owned()),
            ("sinks/scored.sql", with_topic(SCORED)),
            ("alerts/busy.sql", with_topic(BUSY)),
            ("alerts/ring.sql", with_topic(RING)),
        ];
        let project = Project::from_files(&files, http)?;
        project.ok(&["apply"])?;
        Ok(Site { project, urls, topic: topic.to_owned(), group: group.to_owned(), is_kafka })
    }

    pub fn topic_of(&self, stream: &str) -> String {
        format!("{}_{stream}", self.topic)
    }

    /// The topic of a sink or an alert. Each group has its own: it puts out records of its own.
    pub fn topic_put_out(&self, name: &str) -> String {
        format!("{}_{}_{name}", self.topic, self.group)
    }

    /// The same services, opened in this process, for proofs that read files and the log.
    pub async fn installation(&self) -> Result<Installation> {
        let settings = Settings::load(&self.project.folder.path().join("basestream.toml"), &Variables::from_process())?;
        Installation::open(&settings, Functions::standard()).await
    }
}

/// The embedded defaults, in a folder.
pub fn embedded(folder: &Path) -> Urls {
    let at = |name: &str| format!("{}/{name}", folder.display());
    Urls {
        storage: format!("file://{}", at("storage")),
        catalog: format!("sqlite://{}", at("catalog.db")),
        log: format!("file://{}", at("log")),
    }
}
