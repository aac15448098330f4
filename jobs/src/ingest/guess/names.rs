//! Names of columns, and their paths.

const LONGEST: usize = 80;

/// Returns a name in the form of streams and columns: `deviceId` becomes `device_id`, `Amount (EUR)` becomes
/// `amount_eur`; with a number appended if it is taken.
pub(super) fn column_name(text: &str, taken: &[&str]) -> String {
    let mut name = words(text).join("_");
    name.truncate(LONGEST);
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.insert_str(0, if name.is_empty() { "c" } else { "c_" });
    }
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut candidates = std::iter::once(name.clone()).chain(numbered);
    candidates.find(|candidate| !taken.contains(&candidate.as_str())).unwrap_or(name)
}

/// Splits a name into lower-case words.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in text.chars() {
        let begins = character.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit());
        if begins || !character.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns true if the name suggests a time.
pub(super) fn names_a_time(name: &str) -> bool {
    const TIME_WORDS: &str = "ts time timestamp date datetime day at on created updated modified when epoch occurred logged \
        datum zeit uhrzeit zeitpunkt zeitstempel fecha";
    words(name).iter().any(|word| TIME_WORDS.split(' ').any(|of_time| of_time == word))
}

/// Returns a path as text: `$.a."odd name"`. A name with a quotation mark has no path.
pub(super) fn path_text(path: &[String]) -> String {
    let member = |name: &String| match name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') {
        true => format!(".{name}"),
        false => format!(".\"{name}\""),
    };
    format!("${}", path.iter().map(member).collect::<String>())
}
