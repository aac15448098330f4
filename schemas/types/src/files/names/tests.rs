use proptest::prelude::*;

use super::*;

fn any_name() -> impl Strategy<Value = ObjectName> {
    let word = || "[a-z0-9_-]{1,12}|\\PC{1,6}".prop_map(Arc::<str>::from);
    let id = || any::<u128>().prop_map(Uuid::from_u128);
    prop_oneof![
        (word(), id()).prop_map(|(stream, checkpoint)| ObjectName::Archive { stream, checkpoint }),
        (word(), id()).prop_map(|(stream, checkpoint)| ObjectName::DeadLetters { stream, checkpoint }),
        id().prop_map(|checkpoint| ObjectName::States { checkpoint }),
        (word(), id(), id()).prop_map(|(stream, checkpoint, rebuild)| ObjectName::RebuiltArchive { stream, checkpoint, rebuild }),
        (word(), id(), id()).prop_map(|(stream, checkpoint, rebuild)| ObjectName::RebuiltDeadLetters { stream, checkpoint, rebuild }),
        (id(), id()).prop_map(|(checkpoint, rebuild)| ObjectName::RebuiltStates { checkpoint, rebuild }),
        (word(), any::<u32>(), id(), any::<u32>()).prop_map(|(view, version, run, bucket)| ObjectName::Merged {
            view,
            version,
            run,
            bucket
        }),
        (word(), any::<u32>(), id(), any::<u32>()).prop_map(|(view, version, run, bucket)| ObjectName::Joined {
            view,
            version,
            run,
            bucket
        }),
        (word(), any::<u32>(), id(), any::<u32>()).prop_map(|(view, version, run, bucket)| ObjectName::Bucket {
            view,
            version,
            run,
            bucket
        }),
        (word(), any::<u32>(), id()).prop_map(|(view, version, run)| ObjectName::Manifest { view, version, run }),
        (word(), any::<u32>(), id(), any::<[u32; 2]>()).prop_map(|(view, version, run, [slice, bucket])| ObjectName::SliceBucket {
            view,
            version,
            run,
            slice,
            bucket
        }),
        (word(), any::<u32>(), id(), any::<u32>()).prop_map(|(view, version, run, slice)| ObjectName::Draft { view, version, run, slice }),
    ]
}

/// A name's text with another character in one place: many of these are names as well.
fn changed_name() -> impl Strategy<Value = String> {
    (any_name(), any::<prop::sample::Index>(), "[a-zA-Z0-9%./-]").prop_map(|(name, at, letter)| {
        let mut text = name.to_string();
        let at = at.index(text.len());
        text.replace_range(at..=at, &letter);
        text
    })
}

proptest! {
    #[test]
    fn a_name_reads_back_from_its_text(name in any_name()) {
        prop_assert_eq!(name.to_string().parse::<ObjectName>().unwrap(), name);
    }

    #[test]
    fn a_name_is_a_path_that_every_store_takes_unchanged(name in any_name()) {
        let text = name.to_string();
        let path = object_store::path::Path::parse(&text).unwrap();
        prop_assert_eq!(path.as_ref(), text.as_str());
    }

    #[test]
    fn a_text_that_parses_is_the_only_text_of_its_name(
        text in prop_oneof!["(archive|states|snapshots|dead-letters)/[a-zA-Z0-9%./-]{0,60}".boxed(), changed_name().boxed()],
    ) {
        if let Ok(name) = text.parse::<ObjectName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let texts = [
        ObjectName::Archive { stream: "a b".into(), checkpoint: id }.to_string(),
        ObjectName::DeadLetters { stream: "pay".into(), checkpoint: id }.to_string(),
        ObjectName::States { checkpoint: id }.to_string(),
        ObjectName::RebuiltArchive { stream: "pay".into(), checkpoint: id, rebuild: id }.to_string(),
        ObjectName::RebuiltDeadLetters { stream: "pay".into(), checkpoint: id, rebuild: id }.to_string(),
        ObjectName::RebuiltStates { checkpoint: id, rebuild: id }.to_string(),
        ObjectName::Bucket { view: "v".into(), version: 2, run: id, bucket: 7 }.to_string(),
        ObjectName::Manifest { view: "v".into(), version: 2, run: id }.to_string(),
    ];
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    assert_eq!(
        texts,
        [
            format!("archive/a%20b/{uuid}.parquet"),
            format!("dead-letters/pay/{uuid}.parquet"),
            format!("states/{uuid}.states"),
            format!("archive/pay/{uuid}/{uuid}.parquet"),
            format!("dead-letters/pay/{uuid}/{uuid}.parquet"),
            format!("states/{uuid}/{uuid}.states"),
            format!("snapshots/v/2/{uuid}/00007.parquet"),
            format!("snapshots/v/2/{uuid}/manifest.json"),
        ]
    );
}

#[test]
fn a_name_that_leaves_its_folder_is_refused() {
    for text in ["archive/../x.parquet", "archive//0.parquet", "states/../../x.states", "", "other/thing"] {
        assert!(text.parse::<ObjectName>().is_err(), "{text}");
    }
    let name = ObjectName::Archive { stream: "../..".into(), checkpoint: Uuid::nil() };
    assert!(!name.to_string().contains(".."));
}
