//! Redacts secrets in URLs, and in texts that contain URLs, for messages and logs.

/// Replaces a secret.
pub const HIDDEN: &str = "***";

/// Returns the URL in printable form: passwords before the host and parameters that hold a secret are hidden.
pub fn redacted_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // Up to the last '@': a password may contain others, or an unencoded '/' or '?', and no part of it may be shown.
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

/// Redacts every URL in a text that is not ours (an error, a log line).
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

/// True for names whose value is secret.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "credential", "jaas", "key.pem", "private", "access_key", "signature", "oauthbearer.config"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests;
