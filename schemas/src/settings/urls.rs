//! The URLs of the services: checked, made absolute, and never printed with their secrets.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use url::Url;

/// What stands in the place of a secret.
pub(super) const HIDDEN: &str = "***";

/// A service's URL. `Debug` and `Display` hide passwords; [`ServiceUrl::as_str`] is the URL itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

/// What a URL is for, and so which schemes it may have.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Storage,
    Catalog,
    Log,
}

impl ServiceUrl {
    pub fn new(url: &str) -> Self {
        Self(url.trim().to_owned())
    }

    /// With its password: for those who open it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is wrong with it for its use, without its secrets.
    pub(super) fn check(&self, kind: Kind) -> Result<(), String> {
        let (schemes, expected): (&[&str], &str) = match kind {
            Kind::Storage => (&[], "a folder, file:///folder or s3://bucket/prefix"),
            Kind::Catalog => {
                (&["sqlite", "postgres", "postgresql"], "sqlite:///path/catalog.db or postgres://user:password@host:port/database")
            }
            Kind::Log => (&["file", "kafka"], "a folder, file:///folder or kafka://host:9092,host:9092"),
        };
        let path_allowed = !matches!(kind, Kind::Catalog);
        let right = match scheme(&self.0) {
            Some(scheme) => schemes.is_empty() || schemes.contains(&scheme.to_ascii_lowercase().as_str()),
            None => path_allowed && !self.0.is_empty(),
        };
        if right { Ok(()) } else { Err(format!("found the URL \"{self}\"; expected {expected}")) }
    }

    /// Relative paths made absolute; other URLs stay as they are.
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

/// A path counted from `folder`, without `.` and `..`.
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

/// The URL as it may be printed: passwords in front of the host, and parameters that hold a secret, are hidden.
pub fn redacted_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // To the last '@': a password may hold others, or a '/' or '?', that were not encoded, and none of it may be seen.
    let credentials = rest.rsplit_once('@').and_then(|(who, behind)| Some((who.split_once(':')?.0, behind)));
    let mut shown = match credentials {
        Some((user, behind)) if !rest.starts_with('/') => format!("{scheme}://{user}:{HIDDEN}@{behind}"),
        _ => url.to_owned(),
    };
    let mut from = 0;
    while let Some(at) = shown[from..].find(['?', '&']).map(|at| from + at + 1) {
        let end = shown[at..].find(['?', '&']).map_or(shown.len(), |end| at + end);
        from = at;
        if let Some((name, _)) = shown[at..end].split_once('=')
            && is_secret(name)
        {
            let hidden = format!("{name}={HIDDEN}");
            shown.replace_range(at..end, &hidden);
        }
    }
    shown
}

/// A text of somebody else's (an error, a log line) with every URL in it as it may be printed.
pub fn redacted_text(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_end) {
        let word = piece.trim_end_matches(is_end);
        shown.push_str(&redacted_url(word));
        shown.push_str(&piece[word.len()..]);
    }
    shown
}

/// True for names whose value is not for other eyes.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "credential", "jaas", "key.pem", "private", "access_key", "signature", "oauthbearer.config"]
        .iter()
        .any(|word| name.contains(word))
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

/// The letters before the first `:`, if they can be a scheme.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let right = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    right.then_some(scheme)
}
