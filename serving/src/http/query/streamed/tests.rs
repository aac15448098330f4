use types::vector::{Offset, PartitionId};

use super::*;
use crate::Meta;

/// Of a query over these numbers of partitions and views.
fn meta(partitions: i32, views: u32) -> String {
    let meta = Meta {
        cut: (0..partitions).map(|partition| (PartitionId::new("transactions", partition), Offset(1_000_000))).collect(),
        as_of: 0,
        complete_to: None,
        unread: Vec::new(),
        snapshot_at: None,
        versions: (0..views).map(|number| (format!("view_{number}").into(), 1)).collect(),
        degraded: false,
        degraded_reason: None,
        approximate: Vec::new(),
        errors: Vec::new(),
        failed: 0,
        from_archive: false,
        past_retention: Vec::new(),
    };
    serde_json::to_string(&meta).unwrap()
}

#[test]
fn a_header_has_all_of_meta_where_that_is_short() {
    for partitions in [0, 32, 64] {
        let meta = meta(partitions, 3);
        assert_eq!(header_text(meta.clone()).unwrap(), meta);
    }
}

#[test]
fn a_header_is_ascii_whatever_the_names_in_it_are() {
    let meta = json!({"approximate": ["zähl € 😀", "a\u{7f}b\n"]});
    let text = header_text(meta.to_string()).unwrap();
    assert_eq!(text, r#"{"approximate":["z\u00e4hl \u20ac \ud83d\ude00","a\u007fb\n"]}"#);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), meta);
    let long = json!({"approximate": ["ä".repeat(1_000)], "failed": 0});
    let text = header_text(long.to_string()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"failed": 0, LEFT_OUT: ["approximate"]}));
}

#[test]
fn a_header_leaves_out_what_is_too_long_for_it_and_says_so() {
    for (partitions, views, expected) in [(1_000, 1, vec!["cut"]), (1, 1_000, vec!["versions"]), (1_000, 1_000, vec!["cut", "versions"])] {
        let whole: Map<String, Value> = serde_json::from_str(&meta(partitions, views)).unwrap();
        let text = header_text(meta(partitions, views)).unwrap();
        assert!(text.len() <= MAX_HEADER_BYTES, "{}", text.len());
        let mut fields: Map<String, Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(fields.remove(LEFT_OUT), Some(json!(expected)));
        let others = whole.into_iter().filter(|(name, _)| !expected.contains(&name.as_str()));
        assert_eq!(fields, others.collect::<Map<String, Value>>());
    }
}
