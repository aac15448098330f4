//! What the generated files have in common: their comments, constants and names.

/// What begins the comment with the lines of the script that a line of a file comes from.
pub(super) const LINE_COMMENT: &str = " -- line ";

/// The first line of the script in a line's comment.
pub(super) fn commented_line(line: &str) -> Option<usize> {
    let (_, comment) = line.split_once(LINE_COMMENT).or_else(|| line.split_once(": line "))?;
    comment.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// The first lines of a file. `lines` are those of the script that it comes from.
pub(super) fn made_from<'a>(script_name: &str, lines: &str, notes: impl IntoIterator<Item = &'a String>) -> String {
    let mut text = format!("-- Made by `basestream features` from {script_name}: line {lines}.\n");
    for note in notes {
        text.push_str(&format!("-- {note}\n"));
    }
    text
}

pub(super) fn listed(lines: impl IntoIterator<Item = usize>) -> String {
    lines.into_iter().map(|line| line.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the name, with a number where it is taken.
pub(super) fn unused(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    (2..).map(|n| format!("{name}_{n}")).find(|name| !taken(name)).unwrap_or_default()
}

/// A constant of SQL.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
