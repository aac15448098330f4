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
