use super::*;

fn lookup() -> Arc<KnownLookup> {
    Arc::new(KnownLookup::new(PlainLookup { view: "v".into(), columns: None, keys: Vec::new() }))
}

#[test]
fn as_many_texts_are_kept_as_applications_have() {
    let (lookups, kept) = (PlainLookups::default(), lookup());
    assert!(lookups.get("0").is_none());
    for number in 0..PlainLookups::MOST {
        lookups.put(&number.to_string(), kept.clone());
    }
    assert!(lookups.get("0").is_some_and(|found| Arc::ptr_eq(&found, &kept)));
    lookups.put("one more", kept);
    assert!(lookups.get("0").is_none() && lookups.get("one more").is_some());
}

#[test]
fn long_texts_are_kept_up_to_some_bytes() {
    const LENGTH: usize = 16 << 10;
    let (lookups, kept) = (PlainLookups::default(), lookup());
    let text = |number: usize| format!("{number:0>LENGTH$}");
    let fitting = PlainLookups::MOST_BYTES / LENGTH;
    assert!(fitting < PlainLookups::MOST);
    for number in (0..fitting).chain([0]) {
        lookups.put(&text(number), kept.clone());
    }
    assert!((0..fitting).all(|number| lookups.get(&text(number)).is_some()));
    lookups.put(&text(fitting), kept);
    assert!(lookups.get(&text(0)).is_none() && lookups.get(&text(fitting)).is_some());
}
