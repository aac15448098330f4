//! The schemas in which a table without a schema is looked up.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, VisitorMut};
use definitions::syntax::SyntaxNode;

use super::names::{DEFAULT_SCHEMA, SYSTEM_SCHEMA, resolved};
use super::params::inner_mut;
use super::system::SystemTable;
use super::with_names::WithNames;

/// The schemas of a session in which it looks up such a table, in this order. By default that is `public` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPath([Option<SearchedSchema>; 2]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchedSchema {
    Public,
    System,
}

impl Default for SearchPath {
    fn default() -> Self {
        SearchPath([Some(SearchedSchema::Public), None])
    }
}

impl SearchPath {
    /// Keeps those of the schemas that have tables of the node.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> SearchPath {
        let mut path = SearchPath([None; 2]);
        for name in names {
            let schema = match name {
                DEFAULT_SCHEMA => SearchedSchema::Public,
                SYSTEM_SCHEMA => SearchedSchema::System,
                _ => continue,
            };
            if !path.0.contains(&Some(schema))
                && let Some(place) = path.0.iter_mut().find(|place| place.is_none())
            {
                *place = Some(schema);
            }
        }
        path
    }

    /// The first schema that has the table.
    fn schema_of(self, table: &str, is_public: impl Fn(&str) -> bool) -> Option<SearchedSchema> {
        self.0.into_iter().flatten().find(|schema| match schema {
            SearchedSchema::Public => is_public(table),
            SearchedSchema::System => SystemTable::ALL.iter().any(|system| system.name() == table),
        })
    }

    /// Whether this table of the schema `public` is found without its schema.
    pub(super) fn finds_public(self, table: &str) -> bool {
        self.schema_of(table, |_| true) == Some(SearchedSchema::Public)
    }

    /// Adds the schema to the name of each system table that the statement finds without it. `is_public` tells which
    /// tables the schema `public` has.
    pub(super) fn name_system_schema(self, statement: &mut Statement, is_public: impl Fn(&str) -> bool) {
        if !self.0.contains(&Some(SearchedSchema::System)) {
            return;
        }
        let is_system = |table: &str| self.schema_of(table, &is_public) == Some(SearchedSchema::System);
        if let Some(statement) = inner_mut(statement) {
            let _ = statement.visit_mut(&mut SystemTables { is_system: &is_system, with_names: WithNames::default() });
        }
    }
}

struct SystemTables<'a> {
    is_system: &'a dyn Fn(&str) -> bool,
    with_names: WithNames,
}

impl VisitorMut for SystemTables<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.with_names.enter_body(query.with.as_ref());
        self.with_names.go_to_definitions();
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.with_names.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(name)] = relation.0.as_slice() {
            let table = resolved(name);
            if !self.with_names.has(&table) && (self.is_system)(&table) {
                relation.0.insert(0, ObjectNamePart::Identifier(Ident::new(SYSTEM_SCHEMA)));
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn a_system_table_is_found_where_no_schema_before_has_the_name() {
        let sql = "EXPLAIN WITH views AS (SELECT * FROM views), v AS (SELECT * FROM Runs) \
            SELECT v.a FROM views, public.runs, \"Runs\", sinks AS s JOIN v ON EXISTS (SELECT * FROM runs) WHERE runs = 1";
        let read = |names: &[&str]| {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            SearchPath::from_names(names.iter().copied()).name_system_schema(&mut statement, |table| table == "sinks");
            statement.to_string()
        };
        let unchanged = DFParser::parse_sql(sql).unwrap().pop_front().unwrap().to_string();
        assert_eq!(read(&["public", "$user"]), unchanged);
        assert_eq!(read(&[]), unchanged);
        let system = unchanged.replace("FROM views)", "FROM system.views)").replace("FROM Runs", "FROM system.Runs");
        let system = system.replace("FROM runs)", "FROM system.runs)");
        assert_eq!(read(&["nowhere", "public", "system", "public"]), system);
        assert_eq!(read(&["system", "system", "public"]), system.replace(" sinks AS s", " system.sinks AS s"));
        let finds = |names: &[&str], table: &str| SearchPath::from_names(names.iter().copied()).finds_public(table);
        assert!(finds(&["public", "system"], "runs") && finds(&["system", "public"], "orders"));
        assert!(!finds(&["system", "public"], "runs") && !finds(&["system"], "orders") && !finds(&[], "orders"));
        assert!(SearchPath::default().finds_public("runs"));
    }
}
