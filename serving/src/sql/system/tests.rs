//! The tables of docs/reference/sql.md, against those that there are.

use std::collections::BTreeMap;

use types::sql_types::sql_name;

use super::SystemTable;
use crate::harness::Harness;

/// A column's name and its type.
type Column = (String, String);

/// The tables whose headings are "### `system.NAME`", each with the columns that the rows below it name.
fn documented(page: &str) -> BTreeMap<String, Vec<Column>> {
    let mut tables: BTreeMap<String, Vec<Column>> = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if line.starts_with('#') {
            current = line.strip_prefix("### `system.").and_then(|rest| rest.strip_suffix('`')).map(str::to_owned);
            tables.extend(current.iter().map(|name| (name.clone(), Vec::new())));
        } else if let Some(name) = &current
            && line.starts_with("| `")
        {
            tables.get_mut(name).unwrap().extend(columns(line));
        }
    }
    tables
}

/// The columns of a row "| `a`, `b` | TEXT, BIGINT | .. |". One type is that of all of them.
fn columns(row: &str) -> Vec<Column> {
    let mut cells = row.split(" | ");
    let names = cells.next().unwrap().trim_start_matches("| ").split(", ").map(|name| name.trim_matches('`').to_owned());
    let types: Vec<&str> = cells.next().unwrap().split(", ").collect();
    names.enumerate().map(|(index, name)| (name, types[index.min(types.len() - 1)].to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_lists_the_columns_of_each_system_table() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/sql.md")).unwrap();
    let harness = Harness::new().await;
    let mut there_are = BTreeMap::new();
    for table in SystemTable::ALL {
        let response = harness.node.query(&format!("SELECT * FROM system.{}", table.name()), Vec::new()).await.unwrap();
        let columns = response.schema.fields().iter().map(|field| (field.name().clone(), sql_name(field.data_type())));
        there_are.insert(table.name().to_owned(), columns.collect::<Vec<Column>>());
    }
    assert_eq!(documented(&page), there_are);
}
