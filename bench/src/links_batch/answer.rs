//! Answers, held against each other row by row.

use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use schemas::{Error, Result};

use super::contender::Outcome;
use crate::installed::Pristine;
use crate::view::{VALUES, VIEW};

/// Keys with their values, in the order of the keys.
pub(super) type Answer = Vec<(String, [i64; 5])>;

/// What the last batch run joined.
pub(super) async fn joined(installed: &Pristine) -> Result<Answer> {
    let installation = installed.open().await?;
    let node = installation.node(None).await?;
    let columns = VALUES.join(", ");
    let response = node.query(&format!("SELECT device_id, {columns} FROM {VIEW}__batch"), Vec::new()).await?;
    let answer = rows(&response.collect().await?)?;
    installation.close().await;
    Ok(answer)
}

/// Any difference between two answers is an error.
pub(super) fn compare_all(outcomes: &[Outcome]) -> Result<()> {
    let mut told = outcomes.iter().filter_map(|outcome| Some((outcome.contender.name(), outcome.answer.as_ref()?)));
    let Some((name, first)) = told.next() else { return Err(Error::internal("nobody answered")) };
    for (other, answer) in told {
        same(first, answer).map_err(|error| error.with("one", &name).with("another", other))?;
    }
    Ok(())
}

fn same(first: &Answer, other: &Answer) -> Result<()> {
    if let Some((one, two)) = first.iter().zip(other).find(|(one, two)| one != two) {
        let error = Error::internal("two answers differ");
        return Err(error.with("one has", format!("{one:?}")).with("the other", format!("{two:?}")));
    }
    match first.len() == other.len() {
        true => Ok(()),
        false => Err(Error::internal("two answers have other keys").with("one has", first.len()).with("the other", other.len())),
    }
}

pub(super) fn read(path: &Path) -> Result<Answer> {
    let file = std::fs::File::open(path).map_err(|error| Error::from(error).with("file", path.display()))?;
    let batches = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?.collect::<Result<Vec<_>, _>>()?;
    rows(&batches)
}

fn rows(batches: &[RecordBatch]) -> Result<Answer> {
    let mut answer = Answer::new();
    for batch in batches {
        let column = |name: &str, data_type| {
            let column = batch.column_by_name(name).ok_or_else(|| Error::internal("an answer lacks a column").with("column", name))?;
            Ok::<_, Error>(cast(column, data_type)?)
        };
        let keys = column("device_id", &DataType::Utf8)?;
        let values = VALUES.map(|name| column(name, &DataType::Int64));
        let values: Vec<_> = values.into_iter().collect::<Result<_>>()?;
        for row in 0..batch.num_rows() {
            let value = |nth: usize| values[nth].as_primitive::<Int64Type>().value(row);
            answer.push((keys.as_string::<i32>().value(row).to_owned(), [value(0), value(1), value(2), value(3), value(4)]));
        }
    }
    answer.sort();
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_or_a_key_that_differs_is_found() {
        let answer: Answer = vec![("a".into(), [1, 2, 3, 4, 5]), ("b".into(), [0; 5])];
        let mut other = answer.clone();
        assert!(same(&answer, &other).is_ok());
        other[1].1[4] = 1;
        assert!(same(&answer, &other).unwrap_err().to_string().contains("differ"));
        assert!(same(&answer, &answer[..1].to_vec()).is_err());
    }
}
