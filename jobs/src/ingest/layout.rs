//! Maps a file's columns to a stream's columns, and a row to a JSON record with each value at its column's path.
//! Columns that the stream does not know are kept under their own names, so a column declared later finds them.

use definitions::{Column, ColumnType, StreamDefinition};
use types::{Error, Result};

use super::cell::write_string;
use super::column_names::column_name;

/// Where a file's values go in the record.
#[derive(Debug)]
pub(super) struct Layout {
    root: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    name: String,
    /// The name as JSON, with the colon.
    prefix: Vec<u8>,
    /// The file's column that fills it, with the stream's type; no type for a column that the stream does not know.
    source: Option<(usize, Option<ColumnType>)>,
    children: Vec<Member>,
}

impl Layout {
    /// Matches a file's columns by name. `names` may be dotted (`a.b`) for members of structures. `extra` says which
    /// columns are kept although no column of the stream matches them.
    ///
    /// Errors: `Input` if a NOT NULL column has no match.
    pub(super) fn new(stream: &StreamDefinition, names: &[String], extra: impl Fn(usize) -> bool) -> Result<Self> {
        let sources = match_columns(stream, names)?;
        let mut root = Vec::new();
        for (column, source) in stream.columns.iter().zip(&sources) {
            if let Some(source) = source {
                insert(&mut root, &column.path, (*source, Some(column.column_type.clone())));
            }
        }
        for (index, name) in names.iter().enumerate() {
            let taken = sources.contains(&Some(index)) || root.iter().any(|member| member.name == *name);
            if extra(index) && !taken {
                insert(&mut root, std::slice::from_ref(name), (index, None));
            }
        }
        Ok(Self { root })
    }

    /// Appends one record. `write` appends the JSON of a file's column, or returns false for null, which is left out.
    pub(super) fn write_record<F>(&self, out: &mut Vec<u8>, write: &mut F) -> Result<(), String>
    where
        F: FnMut(usize, Option<&ColumnType>, &mut Vec<u8>) -> Result<bool, String>,
    {
        write_members(&self.root, out, write)
    }
}

fn insert(members: &mut Vec<Member>, path: &[String], source: (usize, Option<ColumnType>)) {
    let Some((name, rest)) = path.split_first() else { return };
    let at = members.iter().position(|member| member.name == *name).unwrap_or_else(|| {
        let mut prefix = Vec::new();
        write_string(name, &mut prefix);
        prefix.push(b':');
        members.push(Member { name: name.clone(), prefix, source: None, children: Vec::new() });
        members.len() - 1
    });
    if rest.is_empty() {
        // Two columns with one path share a member.
        members[at].source.get_or_insert(source);
    } else {
        insert(&mut members[at].children, rest, source);
    }
}

fn write_members<F>(members: &[Member], out: &mut Vec<u8>, write: &mut F) -> Result<(), String>
where
    F: FnMut(usize, Option<&ColumnType>, &mut Vec<u8>) -> Result<bool, String>,
{
    out.push(b'{');
    let mut first = true;
    for member in members {
        let before = out.len();
        if !first {
            out.push(b',');
        }
        out.extend_from_slice(&member.prefix);
        let written = match &member.source {
            Some((source, column_type)) => {
                write(*source, column_type.as_ref(), out).map_err(|error| format!("column {}: {error}", member.name))?
            }
            None => {
                write_members(&member.children, out, write)?;
                true
            }
        };
        if written {
            first = false;
        } else {
            out.truncate(before);
        }
    }
    out.push(b'}');
    Ok(())
}

/// Returns, for each column of the stream, the index of the file's column that fills it.
pub(super) fn match_columns(stream: &StreamDefinition, names: &[String]) -> Result<Vec<Option<usize>>> {
    let mut sources: Vec<Option<usize>> = stream.columns.iter().map(|column| by_name(column, names)).collect();
    fill(&mut sources, stream, |column| by_last_member(stream, column, names));
    fill(&mut sources, stream, |column| by_words(column, names));
    match stream.columns.iter().zip(&sources).find(|(column, source)| source.is_none() && !column.nullable) {
        Some((column, _)) => Err(lacking(stream, column, names)),
        None => Ok(sources),
    }
}

/// Looks for the columns that have no source yet, among those that no other one has.
fn fill(sources: &mut [Option<usize>], stream: &StreamDefinition, find: impl Fn(&Column) -> Option<usize>) {
    for (index, column) in stream.columns.iter().enumerate() {
        if sources[index].is_none() {
            sources[index] = find(column).filter(|source| !sources.contains(&Some(*source)));
        }
    }
}

/// Finds a column by its dotted path or its name: exactly, or else ignoring case.
fn by_name(column: &Column, names: &[String]) -> Option<usize> {
    let dotted = column.path.join(".");
    let mut wanted = [column.name.as_str(), dotted.as_str()];
    if column.path.len() > 1 {
        // A dotted name is more specific than a plain one, which may belong to another column.
        wanted.reverse();
    }
    let exactly = |wanted: &&str| names.iter().position(|name| name == wanted);
    let any_case = |wanted: &&str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    wanted.iter().find_map(exactly).or_else(|| wanted.iter().find_map(any_case))
}

/// Finds a column by the last member of its path, if no other column's path ends in the same.
fn by_last_member(stream: &StreamDefinition, column: &Column, names: &[String]) -> Option<usize> {
    let last = column.path.last()?;
    let alone = stream.columns.iter().filter(|other| other.path.last() == Some(last)).count() == 1;
    names.iter().position(|name| name == last).filter(|_| alone)
}

/// Finds the only column whose name has the column's words: `Amount (EUR)` is `amount_eur`.
fn by_words(column: &Column, names: &[String]) -> Option<usize> {
    let mut alike = names.iter().enumerate().filter(|(_, name)| column_name(name, &[]) == column.name).map(|(index, _)| index);
    alike.next().filter(|_| alike.next().is_none())
}

fn lacking(stream: &StreamDefinition, column: &Column, names: &[String]) -> Error {
    let path = match column.path.as_slice() {
        [only] if *only == column.name => String::new(),
        path => format!(" or \"{}\"", path.join(".")),
    };
    Error::input(format!(
        "the file has no column \"{}\"{path}, which is NOT NULL in stream {}: it has {}",
        column.name,
        stream.name,
        names.join(", ")
    ))
}
