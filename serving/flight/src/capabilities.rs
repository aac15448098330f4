//! Describes the server and its types to clients.

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction, XdbcDataType,
};

pub(crate) fn server_info() -> Result<SqlInfoData> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "basestream");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, true);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    info.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlQuotedIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlCatalogAtStart, true);
    info.build()
}

/// A type: its name, what it is to a driver, its size, and what stands around a literal.
struct Known(&'static str, XdbcDataType, i32, Option<&'static str>);

const TYPES: [Known; 9] = [
    Known("BIGINT", XdbcDataType::XdbcBigint, 64, None),
    Known("BYTEA", XdbcDataType::XdbcVarbinary, i32::MAX, None),
    Known("DECIMAL", XdbcDataType::XdbcDecimal, 38, None),
    Known("INT", XdbcDataType::XdbcInteger, 32, None),
    Known("DOUBLE", XdbcDataType::XdbcDouble, 53, None),
    Known("TEXT", XdbcDataType::XdbcVarchar, i32::MAX, Some("'")),
    Known("DATE", XdbcDataType::XdbcDate, 10, Some("'")),
    Known("TIMESTAMPTZ", XdbcDataType::XdbcTimestamp, 32, Some("'")),
    Known("BOOLEAN", XdbcDataType::XdbcBit, 1, None),
];

pub(crate) fn types() -> Result<XdbcTypeInfoData> {
    let mut all = XdbcTypeInfoDataBuilder::new();
    for Known(name, data_type, size, quote) in TYPES {
        let is_number = matches!(name, "BIGINT" | "DECIMAL" | "INT" | "DOUBLE");
        all.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            sql_data_type: data_type,
            column_size: Some(size),
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(str::to_owned),
            create_params: (name == "DECIMAL").then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: name == "TEXT",
            searchable: Searchable::Full,
            unsigned_attribute: is_number.then_some(false),
            auto_increment: Some(false),
            local_type_name: Some(name.to_owned()),
            num_prec_radix: is_number.then_some(if name == "DECIMAL" { 10 } else { 2 }),
            ..XdbcTypeInfo::default()
        });
    }
    all.build()
}
