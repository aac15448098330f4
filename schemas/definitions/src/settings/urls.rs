//! The URLs of the services. They are checked, made absolute, and never printed with their secrets.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use types::redact::redacted_url;
use url::Url;

/// A service's URL. `Debug` and `Display` hide passwords; [`ServiceUrl::as_str`] is the URL itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

/// The use of a URL, which determines the schemes it may have.
#[derive(Clone, Copy)]
pub(super) enum UrlKind {
    Storage,
    Catalog,
    Log,
}

impl ServiceUrl {
    /// Creates a URL from a text, without the space around it.
    pub fn new(url: &str) -> Self {
        Self(url.trim().to_owned())
    }

    /// Returns the URL with its password, for opening it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what is wrong with the URL for its use, without its secrets.
    pub(super) fn check(&self, kind: UrlKind) -> Result<(), String> {
        let (schemes, expected): (&[&str], &str) = match kind {
            UrlKind::Storage => (&[], "a folder, file:///folder or s3://bucket/prefix"),
            UrlKind::Catalog => {
                (&["sqlite", "postgres", "postgresql"], "sqlite:///path/catalog.db or postgres://user:password@host:port/database")
            }
            UrlKind::Log => (&["file", "kafka"], "a folder, file:///folder or kafka://host:9092,host:9092"),
        };
        let path_allowed = !matches!(kind, UrlKind::Catalog);
        let right = match scheme(&self.0) {
            Some(scheme) => schemes.is_empty() || schemes.contains(&scheme.to_ascii_lowercase().as_str()),
            None => path_allowed && !self.0.is_empty(),
        };
        if right { Ok(()) } else { Err(format!("found the URL \"{self}\"; expected {expected}")) }
    }

    /// Makes relative paths absolute; other URLs stay as they are.
    pub(super) fn resolved(&self, folder: &Path) -> ServiceUrl {
        let (scheme, rest) = match scheme(&self.0) {
            None => ("file", self.0.as_str()),
            Some(scheme @ ("file" | "sqlite")) => (scheme, &self.0[scheme.len() + 1..]),
            Some(_) => return self.clone(),
        };
        let has_scheme = rest.len() < self.0.len();
        let path = if has_scheme { rest.strip_prefix("//").unwrap_or(rest) } else { rest };
        if path == ":memory:" || (has_scheme && rest.starts_with("///")) {
            return self.clone();
        }
        match Url::from_file_path(resolved_path(folder, Path::new(path))) {
            Ok(url) => ServiceUrl(format!("{scheme}://{}", url.path())),
            Err(()) => self.clone(),
        }
    }
}

/// Returns a path relative to `folder` as an absolute one, without `.` and `..`.
pub(super) fn resolved_path(folder: &Path, path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in folder.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            other => resolved.push(other),
        }
    }
    resolved
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redacted_url(&self.0))
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted_url(&self.0))
    }
}

/// Returns the letters before the first `:`, if they can be a scheme.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let right = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    right.then_some(scheme)
}
