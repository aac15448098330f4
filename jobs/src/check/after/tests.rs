use definitions::parse::parse_definitions;
use proptest::prelude::*;

use super::*;

/// Views by name, each after the one that it names.
fn project(views: &[(&str, Option<&str>)]) -> Definitions {
    let text = |(name, after): &(&str, Option<&str>)| {
        let with = after.map(|after| format!(" WITH (after = '{after}')")).unwrap_or_default();
        (None, format!("CREATE VIEW {name}{with} AS SELECT count(*) AS n FROM s"))
    };
    let (definitions, problems) = parse_definitions(&views.iter().map(text).collect::<Vec<_>>());
    assert!(problems.is_empty(), "{problems}");
    definitions
}

fn found(views: &[(&str, Option<&str>)], staging: &[&str]) -> Vec<String> {
    let staging = staging.iter().map(|name| Arc::from(*name)).collect();
    mistakes(&project(views), &staging, |name| name == "left_out").iter().map(|mistake| mistake.message.clone()).collect()
}

#[test]
fn a_view_that_never_runs_is_refused() {
    assert_eq!(found(&[("a", None), ("b", Some("a")), ("c", Some("b"))], &[]), Vec::<String>::new());
    assert_eq!(found(&[("b", Some("nothing"))], &[]), ["view \"b\": after = 'nothing' names no view"]);
    assert_eq!(found(&[("b", Some("left_out"))], &[]), Vec::<String>::new(), "its own mistake is reported");
    assert_eq!(found(&[("a", None), ("b", Some("a"))], &["a"]), ["view \"b\": after = 'a' names a view without runs"]);
    assert_eq!(
        found(&[("a", Some("b")), ("b", Some("a")), ("c", Some("a"))], &[]),
        [
            "view \"a\": its runs would wait for themselves: a after b after a",
            "view \"b\": its runs would wait for themselves: b after a after b"
        ]
    );
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

proptest! {
    /// Following `after` from any view ends at one without it, unless a circle is found.
    #[test]
    fn what_is_accepted_ends_at_a_view_with_a_schedule_of_its_own(after in prop::collection::vec(prop::option::of(0usize..6), 6)) {
        let not_itself = |(n, after): (usize, &Option<usize>)| (NAMES[n], after.filter(|after| *after != n).map(|after| NAMES[after]));
        let views: Vec<_> = after.iter().enumerate().map(not_itself).collect();
        let next = |at: &str| views.iter().find(|(name, _)| *name == at).and_then(|(_, after)| *after);
        let ends = |from: &str| std::iter::successors(Some(from), |at| next(at)).take(10).count() < 10;
        prop_assert_eq!(found(&views, &[]).is_empty(), NAMES.iter().all(|name| ends(name)));
    }
}
