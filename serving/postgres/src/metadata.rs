//! `pg_catalog` and `information_schema`: what clients ask to show tables and their columns.
//!
//! One session serves all clients that may read every table, as long as the process runs: a table keeps its OID from
//! one query to the next. A limited principal has a session of its own. The tables have columns and no rows; they
//! are those of the newest read view that any query of the session brought, see [`Tables`].
//!
//! ```text
//! spellings, empty_listings  a client's text, as DataFusion understands it
//! rewrites                   the same for its parsed statement
//! functions, computed        PostgreSQL's functions: constants, and those whose value depends on their arguments
//! known_class                the OID of a table, or an error
//! session_functions          those whose value is that of the client's session
//! pg_catalog                 its tables; of those in classes and attributes the rows are changed, by derived
//! information                information_schema
//! node_schema                the schemas of the node's tables
//! tables                     the node's tables, and the read view that they are of
//! ```

use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::DataType;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use engine::plan::{asking_session_builder, session_config};
use serving::{Described, Node, ReadView, Turn, check_planned, like_pattern, only_queries, parameters};
use types::{Error, Reason, Result};

use information::{INFORMATION_SCHEMA, InformationSchema};
use node_schema::NodeSchema;
use pg_catalog::PgCatalog;
use tables::{Recency, Shown, Tables, without_hidden};

use crate::session::{AskedSettings, SessionValues};

mod attributes;
mod classes;
mod computed;
mod derived;
mod empty_listings;
mod functions;
mod information;
mod known_class;
mod node_schema;
mod pg_catalog;
mod rewrites;
mod session_functions;
mod spellings;
mod tables;

pub(crate) use pg_catalog::is_catalog_table;
pub(crate) use spellings::{oid_columns, oid_params};

/// The database that clients see, whatever they connect to.
pub(crate) const DATABASE: &str = "basestream";
const PUBLIC: &str = "public";
const SYSTEM: &str = "system";
const PG_CATALOG: &str = "pg_catalog";

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
        known_class::register(&session);
        session.register_udf(like_pattern());
        Ok(Metadata(Arc::new(Inner { node, session, parser: PostgresCompatibilityParser::new(), tables, shown: RwLock::default() })))
    }

    pub(crate) async fn describe(
        &self,
        node: &Node,
        sql: &str,
        given: &[Option<DataType>],
        read_view: ReadView,
        values: SessionValues,
    ) -> Result<Described> {
        let (metadata, sql, given) = (self.clone(), sql.to_owned(), given.to_vec());
        let planning = async move {
            let plan = metadata.plan(&sql, &given, read_view, values, &AskedSettings::default()).await?;
            let params = parameters::types(&plan, &given)?;
            let bound = parameters::bind(plan, serving::Params::Typed(parameters::nulls(&params, &given)?))?;
            let state = metadata.0.session.state();
            let physical = state.create_physical_plan(&bound).await?;
            Ok(Described { schema: physical.schema(), text_types: Vec::new(), params, param_text_types: Vec::new() })
        };
        node.plan_apart(planning).await
    }

    /// The rows of a query for whom `node` acts, what it sets while they are made, and its place among the running
    /// queries.
    pub(crate) async fn ask(
        &self,
        node: &Node,
        sql: &str,
        params: Vec<ScalarValue>,
        read_view: ReadView,
        values: SessionValues,
    ) -> Result<(SendableRecordBatchStream, AskedSettings, Turn)> {
        let (metadata, sql) = (self.clone(), sql.to_owned());
        let planning = async move {
            let types: Vec<Option<DataType>> = params.iter().map(|value| Some(value.data_type())).collect();
            let settings = AskedSettings::default();
            let plan = metadata.plan(&sql, &types, read_view, values, &settings).await?;
            let plan = parameters::bind(plan, serving::Params::Typed(params))?;
            let state = metadata.0.session.state();
            let physical = state.create_physical_plan(&plan).await?;
            Ok((physical, TaskContext::from(&state), settings))
        };
        let (physical, context, settings) = node.plan_apart(planning).await?;
        let (batches, turn) = node.run_plan(physical, context).await?;
        Ok((batches, settings, turn))
    }

    async fn plan(
        &self,
        sql: &str,
        types: &[Option<DataType>],
        read_view: ReadView,
        values: SessionValues,
        settings: &AskedSettings,
    ) -> Result<LogicalPlan> {
        self.follow(read_view).await?;
        let without_rows = empty_listings::without_rows(sql)?;
        let sql = without_rows.as_deref().unwrap_or(sql);
        definitions::depth::check_depth(sql)?;
        let sql = &*spellings::understood(sql, &values.schemas());
        let statements = self.0.parser.parse(sql).map_err(|error| Error::from(DataFusionError::SQL(Box::new(error), None)))?;
        let [mut statement] =
            <[_; 1]>::try_from(statements).map_err(|_| Error::input("no query: expected one SELECT").with_reason(Reason::NotOneQuery))?;
        rewrites::with_names_of_keywords(&mut statement, sql);
        rewrites::without_absent(&mut statement);
        rewrites::with_type_names(&mut statement);
        rewrites::with_known_classes(&mut statement);
        rewrites::with_visible_tables(&mut statement, &session_functions::schemas(&values, true));
        rewrites::without_escapes(&mut statement);
        rewrites::with_types_of_settings(&mut statement)?;
        let mut state = self.0.session.state();
        session_functions::register(&mut state, &Arc::new(values), settings)?;
        let mut statement = Statement::Statement(Box::new(statement));
        check_planned(&mut statement, &state)?;
        let plan = parameters::plan(&state, sql, statement, types).await?;
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
