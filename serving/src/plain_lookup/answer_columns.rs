//! The columns of a lookup's answer. They follow from its text and the plan of its view.

use std::sync::{Arc, Weak};

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use engine::plan::{TextType, TypedTextColumns, ViewPlan};
use types::Result;
use types::sql_errors::constants_as_sql;

use super::{AskedColumn, PlainLookup};

#[derive(Debug)]
pub(crate) struct AnswerColumns {
    /// Indices of the view's.
    pub(crate) places: Vec<usize>,
    /// With their names in the answer.
    pub(crate) shown: SchemaRef,
    /// What the texts of each are.
    pub(crate) text_types: Vec<TextType>,
    /// The plan that they follow from. A replaced plan is not kept for them.
    plan: Weak<ViewPlan>,
}

impl AnswerColumns {
    /// `None` where one is not there, or is named twice, or shares its name with another.
    pub(super) fn find(lookup: &PlainLookup, plan: &Arc<ViewPlan>) -> Result<Option<AnswerColumns>> {
        let view_schema = plan.output_schema();
        let mut typed_texts = TypedTextColumns::default();
        typed_texts.add_view(&lookup.view, plan);
        let Some(asked) = &lookup.columns else {
            let can_be_shown = view_schema.fields().iter().all(|field| is_as_written(field.name()));
            let places = (0..view_schema.fields().len()).collect();
            let text_types = typed_texts.in_table(&lookup.view, &view_schema);
            return Ok(can_be_shown.then(|| AnswerColumns { places, shown: view_schema, text_types, plan: Arc::downgrade(plan) }));
        };
        let Some(places) = asked.iter().map(|column| view_schema.index_of(&column.name).ok()).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let is_repeated = (1..places.len()).any(|at| {
            let has_same_name = asked[..at].iter().any(|earlier| earlier.shown_as == asked[at].shown_as);
            has_same_name || places[..at].contains(&places[at])
        });
        if is_repeated || !asked.iter().all(|column| is_as_written(&column.shown_as)) {
            return Ok(None);
        }
        let schema = view_schema.project(&places)?;
        let text_types = typed_texts.in_table(&lookup.view, &schema);
        let shown = named_as(asked, schema);
        // The rows of all columns have the view's own schema: they are not compared with another that is the same.
        let shown = if shown == *view_schema { view_schema } else { Arc::new(shown) };
        Ok(Some(AnswerColumns { places, shown, text_types, plan: Arc::downgrade(plan) }))
    }

    /// Whether they follow from this plan.
    pub(super) fn follow_from(&self, plan: &Arc<ViewPlan>) -> bool {
        std::ptr::eq(self.plan.as_ptr(), Arc::as_ptr(plan))
    }
}

/// The columns with the names that are asked for.
fn named_as(asked: &[AskedColumn], schema: Schema) -> Schema {
    if asked.iter().all(|column| column.shown_as == column.name) {
        return schema;
    }
    let renamed = |(field, column): (&FieldRef, &AskedColumn)| field.as_ref().clone().with_name(&column.shown_as);
    let fields: Vec<Field> = schema.fields().iter().zip(asked).map(renamed).collect();
    Schema::new_with_metadata(fields, schema.metadata)
}

/// Whether an answer shows this name as it is: some are shown as SQL instead.
fn is_as_written(name: &str) -> bool {
    !name.contains('(') || constants_as_sql(name) == name
}
