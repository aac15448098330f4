//! The demo's folder: an ordinary project with the embedded defaults, so that every command works on it beside the running demo.

use std::path::{Path, PathBuf};

use schemas::settings::{FILE_NAME, Settings, Variables};
use schemas::{Error, Result};
use tokio::net::TcpListener;

use super::definitions::SOURCES;

const PREFERRED: &str = "127.0.0.1:8080";

/// A project, and the port it is served on.
pub struct Project {
    pub settings: Settings,
    pub listener: TcpListener,
    pub folder: PathBuf,
    /// Deletes the folder at the end, where nobody asked to keep it.
    _temporary: Option<tempfile::TempDir>,
}

impl Project {
    /// Writes the project's files to `folder`, or to a temporary one, and takes a free port.
    pub async fn create(folder: Option<&Path>) -> Result<Project> {
        let (folder, temporary) = match folder {
            Some(folder) => (std::path::absolute(folder)?, None),
            None => {
                let made = tempfile::Builder::new().prefix("basestream-demo-").tempdir()?;
                (made.path().to_path_buf(), Some(made))
            }
        };
        if folder.join("data").exists() {
            return Err(Error::input("the demo needs a folder without data of its own")
                .with("found", folder.join("data").display())
                .with("expected", "a new or empty folder"));
        }
        let listener = free_port().await?;
        let address = listener.local_addr()?;
        for (file, text) in SOURCES {
            write(&folder.join(file), text)?;
        }
        let file = folder.join(FILE_NAME);
        let text = format!("# All the rest is as by default: storage, catalog and log lie in ./data.\n[speed]\ncheckpoint_interval = \"1s\"\n\n[batch]\nmemory_limit = \"1GiB\"\n\n[serving]\nhttp = \"{address}\"\n");
        write(&file, &text)?;
        // The demo is the same everywhere: no variable of the environment changes it.
        let settings = Settings::parse(&text, &file, &Variables::default())?;
        Ok(Project { settings, listener, folder, _temporary: temporary })
    }
}

async fn free_port() -> Result<TcpListener> {
    match TcpListener::bind(PREFERRED).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind("127.0.0.1:0").await?),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::from(error).with("file", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}
