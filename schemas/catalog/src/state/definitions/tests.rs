use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::DefinitionStatus;

const STATUSES: [DefinitionStatus; 5] =
    [DefinitionStatus::Building, DefinitionStatus::Active, DefinitionStatus::Kept, DefinitionStatus::Retired, DefinitionStatus::Redecoded];

fn definition(kind: usize, name: u8, version: u32, status: usize, created_at: i64) -> DefinitionRecord {
    DefinitionRecord {
        kind: DefinitionKind::ALL[kind],
        name: format!("d{name}").into(),
        version,
        sql: String::new(),
        status: STATUSES[status],
        created_at,
        since: created_at,
        kept_until: None,
        rolled_back: false,
    }
}

proptest! {
    /// However versions come and change, the list is what a plain map would be, and those that are live are found among
    /// all of them.
    #[test]
    fn definitions_are_a_map_by_version(
        commits in prop::collection::vec(prop::collection::vec((0..5usize, 0..4u8, 0..9u32, 0..5usize), 0..5), 0..40),
    ) {
        let (mut definitions, mut plain) = (DefinitionVersions::default(), BTreeMap::new());
        for (step, commit) in commits.iter().enumerate() {
            let records = commit.iter().map(|(kind, name, version, status)| definition(*kind, *name, *version, *status, step as i64));
            let records: Vec<_> = records.collect();
            plain.extend(records.iter().map(|record| ((record.kind.word(), record.name.clone(), record.version), record.clone())));
            definitions.extend(records);
        }
        prop_assert!(definitions.iter().eq(plain.values()));
        prop_assert_eq!(definitions.len(), plain.len());
        prop_assert!(definitions.live().eq(plain.values().filter(|record| record.status.is_live())));
        for (kind, name) in DefinitionKind::ALL.into_iter().flat_map(|kind| (0..4u8).map(move |name| (kind, format!("d{name}")))) {
            let of_name = || plain.values().filter(|record| record.kind == kind && *record.name == *name);
            prop_assert!(definitions.versions(kind, &name).eq(of_name()));
            prop_assert!(definitions.live_versions(kind, &name).eq(of_name().filter(|record| record.status.is_live())));
            for version in 0..9 {
                prop_assert_eq!(definitions.get(kind, &name, version), of_name().find(|record| record.version == version));
            }
        }
    }
}
