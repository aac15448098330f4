//! SQL names as texts have them: one, and a list of them.

/// The name as SQL writes it: in double quotes where it needs them.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_lowercase() || char == '_' || char.is_ascii_digit();
    match name.chars().all(is_plain) && !name.starts_with(|char: char| char.is_ascii_digit()) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The names of a list such as `"$user", public`; `None` for any other text.
pub(crate) fn listed(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if !names.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start();
        }
        let (name, after) = first(rest)?;
        names.push(name);
        rest = after.trim_start();
    }
    Some(names)
}

/// The name at the beginning of a text, and what follows it.
fn first(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(|char: char| char == ',' || char.is_whitespace()).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_lowercase(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        let Some(more) = after.strip_prefix('"') else { return Some((name, after)) };
        name.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_names_that_were_written() {
        for names in [&["public"][..], &["$user", "public"], &["A \"b\", c", "", "1d"], &[]] {
            let written: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            assert_eq!(listed(&written.join(" , ")).unwrap(), names);
        }
        assert_eq!(listed(" System,\"Public\" ").unwrap(), ["system", "Public"]);
        for wrong in ["a b", "a,", ",a", "a,,b", "\"a", "\"a\"b", "a, "] {
            assert_eq!(listed(wrong), None, "{wrong}");
        }
    }
}
