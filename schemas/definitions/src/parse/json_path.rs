//! Paths into a JSON record: `$.a.b`, `$."with a dot.in it".c`.

/// A mistake in a path: its position in characters, what was found, and what to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathProblem {
    pub(super) offset: usize,
    pub(super) message: String,
    pub(super) help: String,
}

/// The members to follow from the record's root.
pub(super) fn parse(text: &str) -> Result<Vec<String>, PathProblem> {
    let characters: Vec<char> = text.chars().collect();
    let wrong = |offset: usize, message: String, help: &str| Err(PathProblem { offset, message, help: help.to_owned() });
    if characters.first() != Some(&'$') {
        return wrong(0, format!("the path '{text}' does not begin with '$'"), "paths look like '$.payment.amount'");
    }
    let mut members = Vec::new();
    let mut at = 1;
    while at < characters.len() {
        if characters[at] == '[' {
            return wrong(
                at,
                format!("the path '{text}' picks an array's element"),
                "name the array itself and give the column an array type, or JSON",
            );
        }
        if characters[at] != '.' {
            return wrong(
                at,
                format!("the path '{text}' has '{}' where a '.' belongs", characters[at]),
                "paths look like '$.payment.amount'",
            );
        }
        let (member, end) = match characters.get(at + 1) {
            Some('"') => quoted(&characters, at + 2),
            _ => plain(&characters, at + 1),
        };
        if member.is_empty() || end > characters.len() {
            return wrong(
                at + 1,
                format!("the path '{text}' has no member behind the '.'"),
                "paths look like '$.payment.amount' or '$.\"odd name\"'",
            );
        }
        members.push(member);
        at = end;
    }
    if members.is_empty() {
        return wrong(0, format!("the path '{text}' names no member"), "paths look like '$.payment.amount'");
    }
    Ok(members)
}

/// Reads up to the next `.` or `[`.
fn plain(characters: &[char], begin: usize) -> (String, usize) {
    let member: String = characters[begin..].iter().take_while(|c| !matches!(c, '.' | '[' | '"')).collect();
    let end = begin + member.chars().count();
    (member, end)
}

/// Reads up to the closing quote; without one, returns an end past the text.
fn quoted(characters: &[char], begin: usize) -> (String, usize) {
    let member: String = characters[begin..].iter().take_while(|c| **c != '"').collect();
    let end = begin + member.chars().count() + 1;
    (member, end)
}
