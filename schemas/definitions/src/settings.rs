//! Settings: `basestream.toml`, which says where a project runs.
//!
//! Every key has a default, so every section and every key is optional. In any string `${NAME}` is an environment
//! variable and `${file:/path}` a file's content without its last newline (`$${` is a plain `${`). Every key can be
//! overridden by an environment variable `BASESTREAM__SECTION__KEY`, which is read as a TOML value or else as a string;
//! `BASESTREAM__LOG__PROPERTIES__SASL_PASSWORD` is librdkafka's `sasl.password`. Relative paths, alone or in
//! `file:data`, are relative to the file's folder.
//!
//! ```text
//! services          [storage], [catalog] and [log]
//! speed             [speed]
//! batch             [archive], [batch] and [scheduler]
//! serving           [serving]
//!   access, limits  [serving.auth] and [serving.tls]; [serving.limits]
//! fields            how a value is read from the file
//! document          the file's text, with its variables
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;

use types::{Error, Result};

mod access;
mod batch;
mod cores;
mod document;
mod fields;
mod limits;
mod secret;
mod services;
mod serving;
mod speed;
mod urls;
mod variables;

pub use access::{AuthSettings, PublicPath, TlsSettings};
pub use batch::{ArchiveSettings, BatchSettings, SchedulerSettings};
pub use limits::LimitSettings;
pub use secret::Secret;
pub use services::{CatalogSettings, LogSettings, StorageSettings};
pub use serving::{ClockKind, FreshKind, ServingSettings};
pub use speed::SpeedSettings;
pub use urls::ServiceUrl;
pub use variables::Variables;

/// The default name of the file.
pub const FILE_NAME: &str = "basestream.toml";

/// Where a project runs. The `Debug` text contains no secrets.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The folder of the file, which also holds `streams/`, `views/`, `sinks/`, `alerts/` and `parameters/`. Absolute.
    #[serde(skip)]
    pub project: PathBuf,
    pub storage: StorageSettings,
    pub catalog: CatalogSettings,
    pub log: LogSettings,
    pub speed: SpeedSettings,
    pub archive: ArchiveSettings,
    pub batch: BatchSettings,
    pub scheduler: SchedulerSettings,
    pub serving: ServingSettings,
}

impl Settings {
    /// Reads the file at `path`, substitutes variables and applies overrides.
    ///
    /// Errors: `NotFound` when the file does not exist, `Input` for mistakes in it, with file, line and column or the
    /// variable's name.
    pub fn load(path: &Path, variables: &Variables) -> Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found(format!("there is no settings file at {}; expected {FILE_NAME} (see --config)", path.display()))
            }
            std::io::ErrorKind::InvalidData => {
                Error::input(format!("{}: found bytes that are not UTF-8; expected a TOML file", path.display()))
            }
            _ => Error::from(error).with("file", path.display()),
        })?;
        Self::parse(&text, path, variables)
    }

    /// Same as `load`, for a text in memory. `path` is its name in errors, and its folder is the project's.
    pub fn parse(text: &str, path: &Path, variables: &Variables) -> Result<Settings> {
        let absolute = std::path::absolute(path).map_err(|error| Error::from(error).with("file", path.display()))?;
        let project = absolute.parent().unwrap_or(&absolute).to_path_buf();
        let settings: Settings = document::read(text, path, &project, variables)?;
        settings
            .serving
            .refuse_shared_addresses()
            .map_err(|message| Error::diagnostics(format!("{}: error: {message}", path.display())))?;
        Ok(settings.in_project(project))
    }

    /// Returns the defaults for a project in this folder.
    pub fn defaults(project: &Path) -> Settings {
        Settings::default().in_project(project.to_path_buf())
    }

    /// Makes every path absolute.
    fn in_project(mut self, project: PathBuf) -> Settings {
        self.storage.url = self.storage.url.resolved(&project);
        self.catalog.url = self.catalog.url.resolved(&project);
        self.log.url = self.log.url.resolved(&project);
        self.batch.temp_dir = self.batch.temp_dir.map(|path| urls::resolved_path(&project, &path));
        self.serving.cache_dir = self.serving.cache_dir.map(|path| urls::resolved_path(&project, &path));
        let tls = &mut self.serving.tls;
        for path in [&mut tls.cert, &mut tls.key, &mut tls.client_ca, &mut self.serving.fresh_ca] {
            *path = path.take().map(|path| urls::resolved_path(&project, &path));
        }
        self.project = project;
        self
    }

    /// Returns a line for each setting that is given and changes nothing in `up`, whose layers have one HTTP server.
    pub fn without_effect_in_up(&self) -> Vec<String> {
        let addresses = [("speed", &self.speed.http), ("scheduler", &self.scheduler.http)];
        let given = addresses.into_iter().filter_map(|(layer, address)| Some((layer, address.as_ref()?)));
        let line = |(layer, address): (&str, &String)| {
            format!("{layer}.http = \"{address}\" has no effect in `up`, which answers at serving.http; it is for `basestream {layer}`")
        };
        given.map(line).collect()
    }

    /// Returns a line for each setting that is given and changes nothing because of another one, in any process.
    pub fn without_effect(&self) -> Vec<String> {
        let (speed, serving) = (&self.speed, &self.serving);
        let mut lines = Vec::new();
        if speed.flight_advertise.is_some() && speed.flight.is_none() {
            lines.push("speed.flight_advertise has no effect without speed.flight: the workers offer nothing to nodes".to_owned());
        }
        if serving.fresh == FreshKind::Committed {
            let given = [("fresh_token", serving.fresh_token.is_some()), ("fresh_ca", serving.fresh_ca.is_some())];
            let line = |name| format!("serving.{name} has no effect with serving.fresh = \"committed\": the node follows no workers");
            lines.extend(given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| line(name)));
        }
        lines
    }

    /// Returns the folder on this machine for remembered ids and the lock files of processes: `serving.cache_dir`, or
    /// the project's.
    pub fn local_dir(&self) -> PathBuf {
        self.serving.cache_dir.clone().unwrap_or_else(|| self.project.join("data").join("cache"))
    }
}

#[cfg(test)]
mod tests;
