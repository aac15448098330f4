//! The startup parameter `options`.

use crate::problem::{INVALID_PARAMETER_VALUE, SqlProblem};

/// The settings of the startup parameter `options`, as on the command line of PostgreSQL's server: `-c name=value` and
/// `--name=value`, with a backslash before a space that ends nothing.
pub(super) fn startup_options(text: &str) -> Result<Vec<(String, String)>, SqlProblem> {
    let wrong = |found: &str| {
        let message = format!("invalid command-line argument in options: found \"{found}\", expected -c name=value or --name=value");
        SqlProblem::new(INVALID_PARAMETER_VALUE, message)
    };
    let words = words(text);
    let mut words = words.iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => setting,
            None => match word.strip_prefix("-c").ok_or_else(|| wrong(word))? {
                "" => words.next().map(String::as_str).ok_or_else(|| wrong(word))?,
                setting => setting,
            },
        };
        let (name, value) = setting.split_once('=').ok_or_else(|| wrong(setting))?;
        settings.push((name.trim().replace('-', "_").to_lowercase(), value.to_owned()));
    }
    Ok(settings)
}

/// The words of a text, cut at spaces that have no backslash before them.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_inside, mut chars) = (false, text.chars());
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => chars.next().unwrap_or(char),
            space if space.is_whitespace() => {
                is_inside = false;
                continue;
            }
            other => other,
        };
        if !std::mem::replace(&mut is_inside, true) {
            words.push(String::new());
        }
        words.last_mut().into_iter().for_each(|word| word.push(char));
    }
    words
}
