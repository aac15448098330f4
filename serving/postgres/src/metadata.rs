//! `pg_catalog` and `information_schema`: what clients ask to show tables and their columns.
//!
//! One session serves all clients that may read every table, as long as the process runs: a table keeps its OID from
//! one query to the next. A limited principal has a session of its own. The tables have columns and no rows; they
//! are those of the newest read view that any query of the session brought, see [`Tables`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use arrow::array::{Array, ArrayRef, AsArray, Int16Array, Int32Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, Int16Type, Int32Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{MemTable, SchemaProvider, Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, col, lit};
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use engine::plan::{asking_session_builder, session_config};
use serving::{Described, Loaded, Node, ReadView, TableDescription, like_pattern, only_queries, parameters};
use types::tiles::Micros;
use types::{Error, Reason, Result};

use crate::columns::{WireType, text_schema};
use crate::session::defaults;
use information::{INFORMATION_SCHEMA, InformationSchema};

mod computed;
mod functions;
mod information;
mod spellings;

pub(crate) use spellings::{oid_columns, oid_params};

/// The database that clients see, whatever they connect to.
pub(crate) const DATABASE: &str = "basestream";
const PUBLIC: &str = "public";
const SYSTEM: &str = "system";
const PG_CATALOG: &str = "pg_catalog";
/// The views that are always empty, with their columns.
const ABSENT: [(&str, &[&str]); 5] = [
    ("pg_cursors", &["name", "statement", "is_holdable", "is_binary", "is_scrollable", "creation_time"]),
    ("pg_indexes", &["schemaname", "tablename", "indexname", "tablespace", "indexdef"]),
    ("pg_policies", &["schemaname", "tablename", "policyname", "permissive", "roles", "cmd", "qual", "with_check"]),
    ("pg_rules", &["schemaname", "tablename", "rulename", "definition"]),
    ("pg_sequences", &["schemaname", "sequencename", "sequenceowner", "data_type", "start_value", "last_value"]),
];
/// A query with one of these texts lists the columns of indexes, primary keys or foreign keys, as drivers do. There are
/// none.
const KEY_QUERY_MARKERS: [&str; 4] = ["_pg_expandarray", "conkey[", "any(c.conkey)", "generate_subscripts(pg_catalog.pg_index.indkey"];
/// The prefix of hidden columns.
const HIDDEN: &str = "__";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metadata(Arc<Inner>);

struct Inner {
    node: Node,
    session: SessionContext,
    parser: PostgresCompatibilityParser,
    tables: Arc<Tables>,
    /// What the tables were read from. It is not in `Tables`, which would make the schemas' futures slow to compile.
    shown: RwLock<Shown>,
}

/// A catalog state, and the versions of views that answered there in the place of the served ones.
#[derive(Debug, Default)]
struct Shown {
    loaded: Weak<Loaded>,
    versions: BTreeMap<Arc<str>, u32>,
}

/// The tables of the newest read view that any query brought. They never go back to those of an older one.
///
/// A query sees the tables of its own read view or of a newer one, whether it is in a transaction or not: like
/// PostgreSQL, whose catalog is not part of a transaction's snapshot. They may become newer while it is planned or
/// runs.
#[derive(Debug, Default)]
struct Tables(RwLock<TablesAt>);

#[derive(Debug, Default)]
struct TablesAt {
    recency: Option<Recency>,
    tables: Arc<Vec<TableDescription>>,
}

/// Orders read views: that of the newer one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Recency {
    revision: i64,
    /// When the read view was made: at the same revision a later one may have more views loaded.
    now: Micros,
}

impl Recency {
    fn from_read_view(read_view: &ReadView) -> Recency {
        Recency { revision: read_view.loaded.state.revision, now: read_view.now }
    }
}

impl Shown {
    fn from_read_view(read_view: &ReadView) -> Shown {
        Shown { loaded: Arc::downgrade(&read_view.loaded), versions: read_view.versions.clone() }
    }

    fn is_same(&self, other: &Shown) -> bool {
        self.loaded.ptr_eq(&other.loaded) && self.versions == other.versions
    }
}

impl Tables {
    fn now(&self) -> Arc<Vec<TableDescription>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tables.clone()
    }

    fn are_newer_than(&self, recency: Recency) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).recency > Some(recency)
    }

    /// Takes these tables, unless it has newer ones. Returns whether it took them.
    fn renew(&self, recency: Recency, tables: Vec<TableDescription>) -> bool {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held.recency > Some(recency) {
            return false;
        }
        *held = TablesAt { recency: Some(recency), tables: Arc::new(tables) };
        true
    }
}

impl Metadata {
    pub(crate) fn new(node: Node) -> Result<Metadata> {
        let config = session_config().with_default_catalog_and_schema(DATABASE, PUBLIC);
        // Under the node's memory limit.
        let state = asking_session_builder().with_config(config).with_runtime_env(node.session().runtime_env()).build();
        let session = SessionContext::new_with_state(state);
        node.functions().register(&session)?;
        let tables = Arc::new(Tables::default());
        let catalog = || session.catalog(DATABASE).ok_or_else(|| Error::internal("the session has no catalog"));
        for schema in [PUBLIC, SYSTEM] {
            catalog()?.register_schema(schema, Arc::new(NodeSchema { schema, tables: tables.clone() }))?;
        }
        setup_pg_catalog(&session, DATABASE, EmptyContextProvider).map_err(|error| Error::from(*error))?;
        let inner = catalog()?.schema(PG_CATALOG).ok_or_else(|| Error::internal("the session has no pg_catalog"))?;
        let pg_catalog = Arc::new(PgCatalog { inner, tables: tables.clone() });
        catalog()?.register_schema(PG_CATALOG, pg_catalog.clone())?;
        let inner = InformationSchemaProvider::new(session.state().catalog_list().clone());
        catalog()?.register_schema(INFORMATION_SCHEMA, Arc::new(InformationSchema { inner, pg_catalog, tables: tables.clone() }))?;
        functions::register(&session);
        computed::register(&session);
        session.register_udf(like_pattern());
        Ok(Metadata(Arc::new(Inner { node, session, parser: PostgresCompatibilityParser::new(), tables, shown: RwLock::default() })))
    }

    pub(crate) async fn describe(&self, sql: &str, given: &[Option<DataType>], read_view: ReadView) -> Result<Described> {
        let plan = self.plan(sql, given, read_view).await?;
        let params = parameters::types(&plan, given)?;
        let bound = parameters::bind(plan, serving::Params::Typed(parameters::nulls(&params, given)?))?;
        let state = self.0.session.state();
        let physical = state.create_physical_plan(&bound).await?;
        let uuid_params = vec![false; params.len()];
        Ok(Described { schema: physical.schema(), uuids: Vec::new(), params, uuid_params })
    }

    pub(crate) async fn ask(&self, sql: &str, params: Vec<ScalarValue>, read_view: ReadView) -> Result<SendableRecordBatchStream> {
        let types: Vec<Option<DataType>> = params.iter().map(|value| Some(value.data_type())).collect();
        let plan = parameters::bind(self.plan(sql, &types, read_view).await?, serving::Params::Typed(params))?;
        let physical = self.0.session.state().create_physical_plan(&plan).await?;
        Ok(execute_stream(physical, self.0.session.task_ctx())?)
    }

    async fn plan(&self, sql: &str, types: &[Option<DataType>], read_view: ReadView) -> Result<LogicalPlan> {
        self.follow(read_view).await?;
        definitions::depth::check_depth(sql)?;
        let without_keys = if lists_key_columns(sql) { no_rows(sql) } else { None };
        let sql = &*spellings::understood(without_keys.as_deref().unwrap_or(sql));
        let statements = self.0.parser.parse(sql).map_err(|error| Error::from(DataFusionError::SQL(Box::new(error), None)))?;
        let [mut statement] =
            <[_; 1]>::try_from(statements).map_err(|_| Error::input("no query: expected one SELECT").with_reason(Reason::NotOneQuery))?;
        spellings::without_absent(&mut statement);
        spellings::with_type_names(&mut statement);
        spellings::with_visible_tables(&mut statement);
        spellings::without_escapes(&mut statement);
        let plan = parameters::plan(&self.0.session.state(), sql, Statement::Statement(Box::new(statement)), types).await?;
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        options.verify_plan(&plan).map_err(|error| only_queries(Error::from(error).message()))?;
        Ok(plan)
    }

    /// Makes the tables those of this read view, unless they are of a newer one.
    async fn follow(&self, read_view: ReadView) -> Result<()> {
        let (read, recency) = (Shown::from_read_view(&read_view), Recency::from_read_view(&read_view));
        let is_shown = self.0.shown.read().unwrap_or_else(PoisonError::into_inner).is_same(&read);
        if is_shown || self.0.tables.are_newer_than(recency) {
            return Ok(());
        }
        let tables = self.0.node.tables(read_view).await?.into_iter().map(without_hidden).collect();
        // Held until the tables are those of this state.
        let mut shown = self.0.shown.write().unwrap_or_else(PoisonError::into_inner);
        if self.0.tables.renew(recency, tables) {
            *shown = read;
        }
        Ok(())
    }
}

fn lists_key_columns(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    KEY_QUERY_MARKERS.iter().any(|marker| sql.contains(marker))
}

/// A SELECT with the same names of columns and no rows. `None` for text that is not a SELECT.
fn no_rows(sql: &str) -> Option<String> {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
    let [ast::Statement::Query(query)] = statements.as_slice() else { return None };
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let name = |item: &ast::SelectItem| match item {
        ast::SelectItem::ExprWithAlias { alias, .. } => Some(alias.to_string()),
        ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(name)) => Some(name.to_string()),
        ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts)) => parts.last().map(ToString::to_string),
        _ => None,
    };
    let names = select.projection.iter().map(name).collect::<Option<Vec<_>>>()?;
    let columns: Vec<String> = names.iter().map(|name| format!("CAST(NULL AS TEXT) AS {name}")).collect();
    let kept = spellings::placeholders(sql).into_iter().map(|name| format!(" AND CAST({name} AS TEXT) IS NULL"));
    Some(format!("SELECT {} WHERE false{}", columns.join(", "), kept.collect::<String>()))
}

/// Without the columns that `*` leaves out.
fn without_hidden(table: TableDescription) -> TableDescription {
    if table.is_view || table.schema != PUBLIC {
        return table;
    }
    let shown = |index: &usize| !table.columns.field(*index).name().starts_with(HIDDEN);
    let shown: Vec<usize> = (0..table.columns.fields().len()).filter(shown).collect();
    let fields: Vec<_> = shown.iter().map(|index| table.columns.fields()[*index].clone()).collect();
    let uuids = shown.iter().map(|index| table.uuids[*index]).collect();
    TableDescription { columns: Arc::new(Schema::new(fields)), uuids, ..table }
}

/// A schema of the node.
struct NodeSchema {
    schema: &'static str,
    tables: Arc<Tables>,
}

impl fmt::Debug for NodeSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.schema)
    }
}

#[async_trait]
impl SchemaProvider for NodeSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.now().iter().filter(|table| table.schema == self.schema).map(|table| table.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let tables = self.tables.now();
        let found = tables.iter().find(|table| table.schema == self.schema && table.name == name);
        Ok(found.map(|table| Arc::new(ColumnsOnlyTable(table.clone())) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.now().iter().any(|table| table.schema == self.schema && table.name == name)
    }
}

/// A table of the node, as the catalog describes it.
#[derive(Debug)]
struct ColumnsOnlyTable(TableDescription);

#[async_trait]
impl TableProvider for ColumnsOnlyTable {
    fn schema(&self) -> SchemaRef {
        self.0.columns.clone()
    }

    fn table_type(&self) -> TableType {
        if self.0.is_view { TableType::View } else { TableType::Base }
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let message =
            format!("not supported: \"{}\" together with tables or functions of PostgreSQL's catalog; expected two queries", self.0.name);
        Err(Error::input(message).with_reason(Reason::NotSupported).into())
    }
}

/// `pg_catalog`, with our types of columns.
struct PgCatalog {
    inner: Arc<dyn SchemaProvider>,
    tables: Arc<Tables>,
}

impl fmt::Debug for PgCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PG_CATALOG)
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names().into_iter().chain(ABSENT.iter().map(|(name, _)| (*name).to_owned())).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        if let Some((_, columns)) = ABSENT.iter().find(|(view, _)| *view == name) {
            return Ok(Some(Arc::new(MemTable::try_new(text_schema(columns), vec![Vec::new()])?)));
        }
        let Some(table) = self.inner.table(name).await? else { return Ok(None) };
        match name {
            "pg_attribute" => Ok(Some(Arc::new(Attributes { attributes: table, inner: self.inner.clone(), tables: self.tables.clone() }))),
            "pg_class" => Ok(Some(Arc::new(Classes::new(table)))),
            "pg_database" => Ok(Some(Arc::new(only_ours(table)?))),
            "pg_settings" => Ok(Some(settings()?)),
            _ => Ok(Some(table)),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        ABSENT.iter().any(|(view, _)| *view == name) || self.inner.table_exist(name)
    }
}

/// `pg_database`, without the database that every PostgreSQL has.
fn only_ours(databases: Arc<dyn TableProvider>) -> DataFusionResult<ViewTable> {
    let all = LogicalPlanBuilder::scan("pg_database", provider_as_source(databases), None)?;
    Ok(ViewTable::new(all.filter(col("datname").eq(lit(DATABASE)))?.build()?, None))
}

/// `pg_settings`: the settings that `SHOW ALL` has, with their defaults.
fn settings() -> Result<Arc<dyn TableProvider>> {
    let schema =
        text_schema(&["name", "setting", "unit", "category", "short_desc", "context", "vartype", "source", "boot_val", "reset_val"]);
    let (names, values): (Vec<&str>, Vec<&str>) = defaults().unzip();
    let (names, values): (ArrayRef, ArrayRef) = (Arc::new(StringArray::from(names)), Arc::new(StringArray::from(values)));
    let all = |value: &'static str| -> ArrayRef { Arc::new(StringArray::from(vec![value; names.len()])) };
    let none: ArrayRef = new_null_array(&DataType::Utf8, names.len());
    let kind = [none.clone(), all("basestream"), none, all("user"), all("string"), all("default")];
    let columns = [names.clone(), values.clone()].into_iter().chain(kind).chain([values.clone(), values.clone()]).collect();
    let rows = RecordBatch::try_new(schema.clone(), columns)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![rows]])?))
}

/// `pg_class`, with the columns that it does not have by itself, all NULL, and with tables of no pages: DuckDB reads
/// pages by `ctid`, which no table here has.
#[derive(Debug)]
struct Classes {
    classes: Arc<dyn TableProvider>,
    schema: SchemaRef,
}

impl Classes {
    fn new(classes: Arc<dyn TableProvider>) -> Classes {
        let before = classes.schema();
        let options = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        let absent = [Field::new("relacl", DataType::Utf8, true), Field::new("reloptions", options, true)];
        let fields: Vec<_> = before.fields().iter().cloned().chain(absent.map(Arc::new)).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, before.metadata().clone()));
        Classes { classes, schema }
    }
}

#[async_trait]
impl TableProvider for Classes {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let found = rows(session, &self.classes).await?;
        let column = |field: &Arc<Field>| -> ArrayRef {
            match (field.name().as_str(), found.column_by_name(field.name())) {
                ("relpages", _) => Arc::new(Int32Array::from(vec![0; found.num_rows()])),
                (_, Some(column)) => column.clone(),
                (_, None) => new_null_array(field.data_type(), found.num_rows()),
            }
        };
        let classes = RecordBatch::try_new(self.schema(), self.schema.fields().iter().map(column).collect())?;
        MemTable::try_new(self.schema(), vec![vec![classes]])?.scan(session, projection, filters, limit).await
    }
}

/// `pg_attribute`: the types that answers have. It knows neither UUIDs nor most arrays nor the digits of decimals by
/// itself, and a client that reads binary values goes by it.
struct Attributes {
    attributes: Arc<dyn TableProvider>,
    inner: Arc<dyn SchemaProvider>,
    tables: Arc<Tables>,
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pg_attribute")
    }
}

#[async_trait]
impl TableProvider for Attributes {
    fn schema(&self) -> SchemaRef {
        self.attributes.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let attributes = rows(session, &self.attributes).await?;
        let class = self.inner.table("pg_class").await?.ok_or_else(|| Error::internal("there is no pg_class"))?;
        let class = rows(session, &class).await?;
        let namespace = self.inner.table("pg_namespace").await?.ok_or_else(|| Error::internal("there is no pg_namespace"))?;
        let namespace = rows(session, &namespace).await?;
        let tables = self.tables.now();
        let types = wire_types(&attributes, &tables_by_oid(&class, &namespace, &tables)?)?;
        let typed = with_wire_types(&attributes, &types)?;
        MemTable::try_new(self.schema(), vec![vec![typed]])?.scan(session, projection, filters, limit).await
    }
}

async fn rows(session: &dyn Session, table: &Arc<dyn TableProvider>) -> DataFusionResult<RecordBatch> {
    let plan = table.scan(session, None, &[], None).await?;
    let batches = collect(plan, session.task_ctx()).await?;
    Ok(arrow::compute::concat_batches(&table.schema(), &batches)?)
}

fn integers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int32Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int32Type>());
    column.ok_or_else(|| Error::internal(format!("there is no column {name} of OIDs")))
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| Error::internal(format!("there is no column {name} of texts")))
}

/// The tables by the OIDs that `pg_class` gives them.
fn tables_by_oid<'a>(
    class: &RecordBatch,
    namespace: &RecordBatch,
    tables: &'a [TableDescription],
) -> Result<HashMap<i32, &'a TableDescription>> {
    let (schema_oids, schema_names) = (integers(namespace, "oid")?, texts(namespace, "nspname")?);
    let schemas: HashMap<i32, &str> = (0..namespace.num_rows()).map(|row| (schema_oids.value(row), schema_names.value(row))).collect();
    let (oids, names, schemas_of) = (integers(class, "oid")?, texts(class, "relname")?, integers(class, "relnamespace")?);
    let described = |row: usize| {
        let schema = *schemas.get(&schemas_of.value(row))?;
        tables.iter().find(|table| table.schema == schema && table.name == names.value(row))
    };
    Ok((0..class.num_rows()).filter_map(|row| Some((oids.value(row), described(row)?))).collect())
}

/// For each attribute the type of its column; `None` if it belongs to no table of the node.
fn wire_types(attributes: &RecordBatch, tables: &HashMap<i32, &TableDescription>) -> Result<Vec<Option<WireType>>> {
    let (relations, columns) = (integers(attributes, "attrelid")?, texts(attributes, "attname")?);
    let wire_type = |row: usize| {
        let table = tables.get(&relations.value(row))?;
        let index = table.columns.index_of(columns.value(row)).ok()?;
        Some(WireType::from_field(table.columns.field(index), table.uuids[index]))
    };
    Ok((0..attributes.num_rows()).map(wire_type).collect())
}

/// The attributes with these types, where there is one.
fn with_wire_types(attributes: &RecordBatch, types: &[Option<WireType>]) -> Result<RecordBatch> {
    let replaced = |name: &str, value: &dyn Fn(&WireType) -> i32| -> Result<ArrayRef> {
        let before = integers(attributes, name)?;
        let row_value = |(row, wire_type): (usize, &Option<WireType>)| Some(wire_type.as_ref().map_or(before.value(row), value));
        Ok(Arc::new(types.iter().enumerate().map(row_value).collect::<Int32Array>()))
    };
    let replacements = [
        ("atttypid", replaced("atttypid", &|wire_type| wire_type.pg_type().oid() as i32)?),
        ("atttypmod", replaced("atttypmod", &|wire_type| wire_type.modifier)?),
        ("attndims", replaced("attndims", &|wire_type| i32::from(wire_type.is_list))?),
        ("attlen", sizes(attributes, types)),
    ];
    let mut arrays: Vec<ArrayRef> = attributes.columns().to_vec();
    for (name, array) in replacements {
        if let Ok(index) = attributes.schema_ref().index_of(name) {
            arrays[index] = array;
        }
    }
    Ok(RecordBatch::try_new(attributes.schema(), arrays)?)
}

/// `attlen`: the size of a value in bytes.
fn sizes(attributes: &RecordBatch, types: &[Option<WireType>]) -> ArrayRef {
    let before = attributes.column_by_name("attlen").map(|column| column.as_primitive::<Int16Type>());
    let size = |(row, wire_type): (usize, &Option<WireType>)| {
        wire_type.as_ref().map(WireType::size).or_else(|| before.map(|before| before.value(row)))
    };
    Arc::new(types.iter().enumerate().map(size).collect::<Int16Array>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_never_go_back_to_those_of_an_older_read_view() {
        let table = |name: &str| {
            let columns = Arc::new(Schema::empty());
            vec![TableDescription { schema: PUBLIC, name: name.to_owned(), columns, uuids: Vec::new(), is_view: true }]
        };
        let recency = |revision, now| Recency { revision, now };
        let tables = Tables::default();
        let name = || tables.now()[0].name.clone();
        assert!(!tables.are_newer_than(recency(0, i64::MIN)), "there are none yet");
        assert!(tables.renew(recency(5, 20), table("newer")));
        assert!(!tables.renew(recency(4, 30), table("older")), "of an older revision, though it was read later");
        assert!(!tables.renew(recency(5, 10), table("older")), "of the same revision, when fewer views were loaded");
        assert_eq!(name(), "newer");
        assert!(tables.are_newer_than(recency(5, 10)) && !tables.are_newer_than(recency(5, 20)));
        assert!(tables.renew(recency(5, 20), table("same")) && tables.renew(recency(6, 0), table("newest")));
        assert_eq!(name(), "newest");
    }

    #[test]
    fn what_lists_the_columns_of_indexes_has_its_columns_and_no_rows() {
        let sql = "SELECT r.TABLE_CAT, r.KEY_SEQ AS n FROM (SELECT (information_schema._pg_expandarray(i.indkey)) AS KEYS FROM pg_index i) r \
            WHERE r.A = (r.KEYS).x ORDER BY 1";
        assert_eq!(no_rows(sql).unwrap(), "SELECT CAST(NULL AS TEXT) AS TABLE_CAT, CAST(NULL AS TEXT) AS n WHERE false");
        let bound = "SELECT x.pg_index.indrelid, 1 AS one FROM x WHERE a = $2 AND b = $1 AND c = $2";
        let expected = "SELECT CAST(NULL AS TEXT) AS indrelid, CAST(NULL AS TEXT) AS one WHERE false AND CAST($1 AS TEXT) IS NULL \
            AND CAST($2 AS TEXT) IS NULL";
        assert_eq!(no_rows(bound).unwrap(), expected, "its parameters stay");
        assert_eq!(no_rows("DELETE FROM x"), None);
        assert_eq!(no_rows("SELECT * FROM x"), None);
    }
}
