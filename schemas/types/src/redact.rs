//! URLs, and texts that hold URLs, without their secrets: for messages and logs.

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

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
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "credential", "jaas", "key.pem", "private", "access_key", "signature", "oauthbearer.config"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests;
