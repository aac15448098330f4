//! The audit log: one line for each change that a principal made or was refused, under the target `audit`.

use std::sync::LazyLock;

use types::Result;

/// Logs what a principal did, with what, and how it ended. Of an error only its kind: its text may have values that
/// were sent, or a piece of a file.
pub fn audit<T>(principal: &str, action: &str, object: &str, outcome: &Result<T>) {
    match outcome {
        Ok(_) => tracing::info!(target: "audit", principal, action, object, outcome = "done"),
        Err(error) => tracing::info!(target: "audit", principal, action, object, outcome = "failed", kind = error.kind().word()),
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
    use std::fmt::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};
    use types::Error;

    use super::*;

    /// Keeps the fields of what is logged under `audit`.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = write!(self.0, "{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "audit"
        }

        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_line_says_who_did_what_with_what_and_how_it_ended() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            audit("ann", "ask for a run of", "the view \"velocity\"", &Ok(()));
            audit("bob", "operate", "the view \"velocity\"", &Err::<(), _>(Error::forbidden("not his")));
            audit("eve", "set", "the parameter \"least\"", &Err::<(), _>(Error::input("found \"hunter2\", expected BIGINT")));
        });
        let expected = [
            r#"principal="ann" action="ask for a run of" object="the view \"velocity\"" outcome="done" "#,
            r#"principal="bob" action="operate" object="the view \"velocity\"" outcome="failed" kind="forbidden" "#,
            r#"principal="eve" action="set" object="the parameter \"least\"" outcome="failed" kind="input" "#,
        ];
        assert_eq!(*lines.0.lock().unwrap(), expected);
    }

    #[test]
    fn a_user_has_the_name_of_its_number() {
        let users = "root:x:0:1:root:/root:/bin/sh\n# a comment\nann:x:1000:100::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(1, users), None);
    }
}
