//! The demo's folder: an ordinary project with the embedded defaults, so every command works on it while the demo runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use definitions::settings::{FILE_NAME, Settings, Variables};
use tokio::net::TcpListener;
use types::{Error, Result};

use super::definitions::SOURCES;

const PREFERRED: &str = "127.0.0.1:8080";

/// A project and its settings.
pub struct Project {
    pub settings: Settings,
    pub folder: PathBuf,
    /// Deletes the folder at the end, unless the user gave one.
    _temporary: Option<tempfile::TempDir>,
}

impl Project {
    /// Writes the project's files to `folder`, or to a temporary folder, and finds a free port for HTTP.
    pub async fn create(folder: Option<&Path>, once: bool) -> Result<Project> {
        let (folder, temporary) = match folder {
            Some(folder) => (std::path::absolute(folder)?, None),
            None => {
                let made = tempfile::Builder::new().prefix("basestream-demo-").tempdir()?;
                (made.path().to_path_buf(), Some(made))
            }
        };
        if folder.join("data").exists() {
            return Err(Error::input("the demo needs a folder that holds no data")
                .with("found", folder.join("data").display())
                .with("expected", "a new or empty folder"));
        }
        let address = free_address(once).await?;
        for (file, text) in SOURCES {
            write(&folder.join(file), text)?;
        }
        let file = folder.join(FILE_NAME);
        let text = format!(
            "# All the rest is as by default: storage, catalog and log lie in ./data.\n[speed]\ncheckpoint_interval = \"1s\"\n\n[batch]\nmemory_limit = \"1GiB\"\n\n[serving]\nhttp = \"{address}\"\n"
        );
        write(&file, &text)?;
        // The demo is the same everywhere: environment variables do not change it.
        let settings = Settings::parse(&text, &file, &Variables::default())?;
        Ok(Project { settings, folder, _temporary: temporary })
    }
}

/// Returns the usual address for an interactive demo if it is free; otherwise an address with a port that is currently
/// free.
async fn free_address(once: bool) -> Result<SocketAddr> {
    let preferred = if once { None } else { TcpListener::bind(PREFERRED).await.ok() };
    let listener = match preferred {
        Some(listener) => listener,
        None => TcpListener::bind("127.0.0.1:0").await?,
    };
    Ok(listener.local_addr()?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::from(error).with("file", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}
