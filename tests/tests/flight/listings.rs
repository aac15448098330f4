//! What clients find out about a server: its tables and keys, its types, and what it can do.

use arrow::array::{Array, AsArray};
use arrow::datatypes::Schema;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetTables,
    CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_flight::{FlightInfo, IpcMessage};
use futures::TryStreamExt;

use crate::server::{Client, Server, fetch, rows};

async fn listed(client: &mut Client, info: Result<FlightInfo, FlightError>) -> Vec<Vec<String>> {
    let info = info.unwrap();
    let described = info.clone().try_decode_schema().unwrap();
    let mut answer = fetch(client, info).await.unwrap();
    let mut found = Vec::new();
    while let Some(batch) = answer.try_next().await.unwrap() {
        found.push(batch);
    }
    assert_eq!(**answer.schema().unwrap(), described);
    rows(&found)
}

fn tables(pattern: Option<&str>, types: &[&str]) -> CommandGetTables {
    CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: None,
        table_name_filter_pattern: pattern.map(str::to_owned),
        table_types: types.iter().map(ToString::to_string).collect(),
        include_schema: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_their_columns_are_listed() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let found = client.get_catalogs().await;
    assert_eq!(listed(&mut client, found).await, [["basestream"]]);
    let found = client.get_db_schemas(CommandGetDbSchemas::default()).await;
    assert_eq!(listed(&mut client, found).await, [["basestream", "public"], ["basestream", "system"]]);
    let found = client.get_db_schemas(CommandGetDbSchemas { catalog: Some("other".into()), db_schema_filter_pattern: None }).await;
    assert_eq!(listed(&mut client, found).await, [[""; 0]; 0]);
    let found = client.get_table_types().await;
    assert_eq!(listed(&mut client, found).await, [["SYSTEM TABLE"], ["TABLE"], ["VIEW"]]);
    let found = client.get_tables(tables(None, &["TABLE"])).await;
    assert_eq!(listed(&mut client, found).await, [["basestream", "public", "events", "TABLE"]]);
    let found = client.get_tables(tables(Some("per_d%e"), &[])).await;
    assert_eq!(listed(&mut client, found).await, [["basestream", "public", "per_device", "VIEW"]]);
    let found = client.get_tables(tables(None, &["SYSTEM TABLE"])).await;
    assert!(listed(&mut client, found).await.contains(&["basestream", "system", "views", "SYSTEM TABLE"].map(str::to_owned).to_vec()));

    let info = client.get_tables(CommandGetTables { include_schema: true, ..tables(Some("events"), &[]) }).await.unwrap();
    let found: Vec<_> = fetch(&mut client, info).await.unwrap().try_collect().await.unwrap();
    let schema = Schema::try_from(IpcMessage(found[0].column(4).as_binary::<i32>().value(0).to_vec().into())).unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "ts", "device", "unit", "ok", "small", "big", "real", "amount", "day", "raw", "tags"]);
    // What is listed can be asked by its whole name.
    assert_eq!(crate::server::one(&mut client, "SELECT count(*) FROM \"basestream\".\"public\".\"per_device\"").await, "3");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_has_its_keys_and_nothing_refers_to_others() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let keys = |table: &str| CommandGetPrimaryKeys { catalog: None, db_schema: Some("public".into()), table: table.into() };
    let found = client.get_primary_keys(keys("per_unit")).await;
    let expected = |column: &str, place: &str| ["basestream", "public", "per_unit", column, place, "per_unit"].map(str::to_owned).to_vec();
    assert_eq!(listed(&mut client, found).await, [expected("unit", "1"), expected("big", "2")]);
    for none in ["events", "nothing", "per_unit__batch"] {
        let found = client.get_primary_keys(keys(none)).await;
        assert_eq!(listed(&mut client, found).await, [[""; 0]; 0], "{none}");
    }
    let of = || "per_unit".to_owned();
    let found = client.get_exported_keys(CommandGetExportedKeys { catalog: None, db_schema: None, table: of() }).await;
    assert_eq!(listed(&mut client, found).await, [[""; 0]; 0]);
    let found = client.get_imported_keys(CommandGetImportedKeys { catalog: None, db_schema: None, table: of() }).await;
    assert_eq!(listed(&mut client, found).await, [[""; 0]; 0]);
    let found = client.get_cross_reference(CommandGetCrossReference { pk_table: of(), fk_table: of(), ..Default::default() }).await;
    assert_eq!(listed(&mut client, found).await, [[""; 0]; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_what_it_is() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let found = client.get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly]).await;
    let found = listed(&mut client, found).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0][1].contains("basestream") && found[1][1].contains("true"), "{found:?}");
    let found = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
    let found: Vec<_> = fetch(&mut client, found).await.unwrap().try_collect().await.unwrap();
    let names: Vec<&str> = found[0].column(0).as_string::<i32>().iter().flatten().collect();
    assert!(names.contains(&"DECIMAL") && names.contains(&"TIMESTAMPTZ"), "{names:?}");
    assert!(found[0].column(1).null_count() == 0);
    server.stop().await;
}
