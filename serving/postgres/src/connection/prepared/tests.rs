use super::*;

#[test]
fn a_description_is_kept_by_text_types_and_revision() {
    let described = |name: &str| Arc::new(texts(&[name]));
    let (first, second) = (1, 2);
    let mut kept = Descriptions::default();
    kept.keep("SELECT $1", &[25], first, described("text"));
    kept.keep("SELECT $1", &[20], first, described("bigint"));
    assert_eq!(kept.get("SELECT $1", &[25], first), Some(described("text")));
    assert_eq!(kept.get("SELECT $1", &[20], first), Some(described("bigint")));
    assert_eq!(kept.get("SELECT $1", &[20], second), None);
    assert_eq!(kept.get("SELECT $1", &[], first), None);
    assert_eq!(kept.get("SELECT $2", &[20], first), None);
    kept.keep("SELECT $1", &[20], second, described("numeric"));
    assert_eq!(kept.get("SELECT $1", &[20], second), Some(described("numeric")));
    assert_eq!(kept.get("SELECT $1", &[20], first), None);
}

#[test]
fn no_more_descriptions_are_kept_than_may_be() {
    let mut kept = Descriptions::default();
    for types in 0..MAX_DESCRIPTIONS as u32 {
        kept.keep("SELECT $1", &[types], 1, Arc::new(nothing()));
    }
    assert_eq!(kept.get("SELECT $1", &[0], 1), Some(Arc::new(nothing())));
    kept.keep("SELECT 1", &[], 1, Arc::new(nothing()));
    assert_eq!(kept.get("SELECT $1", &[0], 1), None);
    assert_eq!(kept.get("SELECT 1", &[], 1), Some(Arc::new(nothing())));
}
