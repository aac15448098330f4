//! Names of columns, and their paths.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

const LONGEST: usize = 80;

/// Returns a name in the form of streams and columns: `deviceId` becomes `device_id`, `Amount (EUR)` becomes
/// `amount_eur`, `Größe` becomes `groesse`; with a number appended if it is taken.
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

/// Splits a name into lower-case words of ASCII letters and digits.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    // An accent that is a character of its own joins its letter, unless no letter has it: then it is left out.
    for character in text.nfc().filter(|character| !is_combining_mark(*character)) {
        let begins = character.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        let spelled = in_ascii(character);
        if begins || spelled.is_empty() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push_str(&spelled);
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Spells a letter or digit in lower-case ASCII: German umlauts and other letters of two sounds by two letters, Latin
/// letters with an accent without it. Empty for all else.
fn in_ascii(character: char) -> String {
    let lower: String = character.to_lowercase().collect();
    let spelled = match lower.as_str() {
        "ä" | "æ" => "ae",
        "ö" | "œ" => "oe",
        "ü" => "ue",
        "ß" => "ss",
        "þ" => "th",
        "ø" => "o",
        "ł" => "l",
        "đ" | "ð" => "d",
        "ı" => "i",
        _ => return lower.nfd().filter(char::is_ascii_alphanumeric).collect(),
    };
    spelled.to_owned()
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
