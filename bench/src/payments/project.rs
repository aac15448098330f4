//! Creates a project over a filled topic: an installation with its own catalog and storage.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use definitions::parse::parse_definitions;
use definitions::settings::{FILE_NAME, Settings, Variables};
use engine::functions::Functions;
use jobs::Installation;
use types::{Error, Result};
use uuid::Uuid;

use super::definitions::{Kept, stream_sql, view_sql};
use super::topic::Topic;
use crate::Programs;

/// The folder of the project has its catalog, storage and cache; the log is elsewhere.
#[derive(Debug)]
pub struct Project {
    pub folder: PathBuf,
    /// The address at which `up` serves HTTP.
    pub http: String,
}

impl Project {
    /// Creates the project in a new folder, with a view of this many aggregates, and applies its definitions.
    pub async fn create(folder: &Path, topic: &Topic, aggregates: usize, kept: Kept) -> Result<Project> {
        let stream = ("streams/payments.sql", stream_sql(&topic.name, kept));
        Project::with(folder, topic, &[stream, ("views/account_velocity.sql", view_sql(aggregates))]).await
    }

    /// The same with these definitions, by their files.
    pub async fn with(folder: &Path, topic: &Topic, definitions: &[(&str, String)]) -> Result<Project> {
        Project::of_clock("event", folder, topic, definitions).await
    }

    /// The same for events of the present: time is that of the clock on the wall.
    pub async fn of_present(folder: &Path, topic: &Topic, definitions: &[(&str, String)]) -> Result<Project> {
        Project::of_clock("wall", folder, topic, definitions).await
    }

    async fn of_clock(clock: &str, folder: &Path, topic: &Topic, definitions: &[(&str, String)]) -> Result<Project> {
        let http = format!("127.0.0.1:{}", basestream_tests::process::free_port()?);
        // A group of its own: the log knows how far the sinks of a group are, also for the next project over a topic.
        let group = Uuid::new_v4();
        let config =
            format!("[log]\nurl = \"{}\"\n[speed]\ngroup = \"{group}\"\n[serving]\nhttp = \"{http}\"\nclock = \"{clock}\"\n", topic.url);
        for (path, text) in definitions.iter().map(|(path, text)| (*path, text.as_str())).chain([(FILE_NAME, config.as_str())]) {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, text)?;
        }
        let project = Project { folder: folder.to_path_buf(), http };
        let texts: Vec<_> = definitions.iter().map(|(path, text)| (Some((*path).into()), text.clone())).collect();
        let (parsed, mistakes) = parse_definitions(&texts);
        mistakes.into_result()?;
        let installation = project.open().await?;
        installation.apply(&parsed, false).await?;
        installation.close().await;
        Ok(project)
    }

    pub fn config(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    pub async fn open(&self) -> Result<Installation> {
        let settings = Settings::load(&self.config(), &Variables::from_process())?;
        Installation::open(&settings, Functions::standard()).await
    }

    /// Runs a SELECT with the real binary and returns its only row.
    pub fn query(&self, programs: &Programs, sql: &str) -> Result<serde_json::Value> {
        let mut command = Command::new(&programs.basestream);
        command.args(["query", sql, "--json", "--config"]).arg(self.config());
        let output = command.stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = || {
            let wrote = String::from_utf8_lossy(&output.stderr).into_owned();
            Error::internal("a query failed").with("sql", sql).with("answer", &text).with("wrote", wrote)
        };
        let answer: serde_json::Value = serde_json::from_str(&text).map_err(|_| failed())?;
        answer["rows"].get(0).cloned().ok_or_else(failed)
    }
}
