use super::*;

#[test]
fn a_description_is_kept_by_text_types_revision_and_search_path() {
    let described = |name: &str| Arc::new(texts(&[name]));
    let (first, second) = ((1, SearchPath::default()), (2, SearchPath::default()));
    let mut kept = Descriptions::default();
    kept.keep("SELECT $1", &[25], first, described("text"));
    kept.keep("SELECT $1", &[20], first, described("bigint"));
    assert_eq!(kept.get("SELECT $1", &[25], first), Some(described("text")));
    assert_eq!(kept.get("SELECT $1", &[20], first), Some(described("bigint")));
    assert_eq!(kept.get("SELECT $1", &[20], second), None);
    assert_eq!(kept.get("SELECT $1", &[20], (1, SearchPath::from_names(["system"]))), None);
    assert_eq!(kept.get("SELECT $1", &[], first), None);
    assert_eq!(kept.get("SELECT $2", &[20], first), None);
    kept.keep("SELECT $1", &[20], second, described("numeric"));
    assert_eq!(kept.get("SELECT $1", &[20], second), Some(described("numeric")));
    assert_eq!(kept.get("SELECT $1", &[20], first), None);
}

#[test]
fn no_more_descriptions_are_kept_than_may_be() {
    let (mut kept, at) = (Descriptions::default(), (1, SearchPath::default()));
    for types in 0..MAX_DESCRIPTIONS as u32 {
        kept.keep("SELECT $1", &[types], at, Arc::new(nothing()));
    }
    assert_eq!(kept.get("SELECT $1", &[0], at), Some(Arc::new(nothing())));
    kept.keep("SELECT 1", &[], at, Arc::new(nothing()));
    assert_eq!(kept.get("SELECT $1", &[0], at), None);
    assert_eq!(kept.get("SELECT 1", &[], at), Some(Arc::new(nothing())));
}

/// An application may write its values into its texts.
#[test]
fn the_texts_of_descriptions_take_no_more_than_they_may() {
    let text = |number: usize| format!("SELECT {number}{}", " ".repeat(MAX_DESCRIBED_BYTES / 4));
    let at = (1, SearchPath::default());
    let known = |kept: &Descriptions| (0..4).filter(|number| kept.get(&text(*number), &[], at).is_some()).collect::<Vec<_>>();
    let mut kept = Descriptions::default();
    for number in [0, 1, 2, 2] {
        kept.keep(&text(number), &[], at, Arc::new(nothing()));
    }
    assert_eq!(known(&kept), [0, 1, 2]);
    kept.keep(&text(3), &[], at, Arc::new(nothing()));
    assert_eq!(known(&kept), [3]);
}

#[test]
fn a_portal_takes_what_its_text_and_its_values_take() {
    let prepared = Prepared::new("SELECT $1".to_owned(), None, vec![25]);
    let params = vec![ScalarValue::Utf8(Some("x".repeat(1_000)))];
    let of_params = params[0].size();
    assert_eq!(prepared.kept_bytes(), "SELECT $1".len() + 4);
    let portal = Portal { number: 0, prepared, params, formats: Vec::new(), progress: PortalProgress::NotBegun };
    assert_eq!(portal.kept_bytes(), portal.prepared.kept_bytes() + of_params);
}
