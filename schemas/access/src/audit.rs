//! The audit log: one line for each change that a principal made or was refused, under the target `audit`.

use std::sync::LazyLock;

use types::Result;

/// Logs what a principal did, with what, and how it ended.
pub fn audit<T>(principal: &str, action: &str, object: &str, outcome: &Result<T>) {
    match outcome {
        Ok(_) => tracing::info!(target: "audit", principal, action, object, outcome = "done"),
        Err(error) => tracing::info!(target: "audit", principal, action, object, outcome = "failed", %error),
    }
}

/// The user of the operating system who runs this process: `ann`, or `uid 1000` where the number has no name.
pub fn local_user() -> &'static str {
    static USER: LazyLock<String> = LazyLock::new(|| match uid() {
        Some(uid) => name_of(uid, &std::fs::read_to_string("/etc/passwd").unwrap_or_default()).unwrap_or_else(|| format!("uid {uid}")),
        None => std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
    });
    &USER
}

/// By the system and not by a variable, which anyone sets.
fn uid() -> Option<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").ok().map(|process| process.uid())
    }
    #[cfg(not(unix))]
    None
}

fn name_of(uid: u32, users: &str) -> Option<String> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    };
    users.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_of_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\n# a comment\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(1, users), None);
    }
}
