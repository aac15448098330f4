//! Finds code in Markdown, and the command lines in it.

/// A fenced or an indented block.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// The number of its first line, counted from 1.
    pub line: usize,
    /// The first word after the fence; empty for indented blocks.
    pub language: String,
    /// The rest of the fence's line.
    info: String,
    pub text: String,
}

impl Block {
    /// A fragment that is not complete by itself: a fence such as ```` ```sql fragment ````.
    pub fn is_fragment(&self) -> bool {
        self.info.split_whitespace().any(|word| word == "fragment")
    }
}

pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut is_fenced = false;
    for (index, line) in markdown.lines().enumerate() {
        let trimmed = line.trim_start();
        match (&mut open, trimmed.strip_prefix("```")) {
            (Some(_), Some(_)) if is_fenced => {
                blocks.extend(open.take());
                is_fenced = false;
            }
            (Some(block), _) if is_fenced => push(block, line),
            (_, Some(head)) => {
                blocks.extend(open.take());
                let (language, info) = head.split_once(' ').unwrap_or((head, ""));
                open = Some(Block { line: index + 2, language: language.into(), info: info.into(), text: String::new() });
                is_fenced = true;
            }
            (Some(block), None) if line.starts_with("    ") || line.is_empty() => push(block, line.get(4..).unwrap_or_default()),
            (None, None) if line.starts_with("    ") => {
                let mut block = Block { line: index + 1, language: String::new(), info: String::new(), text: String::new() };
                push(&mut block, &line[4..]);
                open = Some(block);
            }
            _ => blocks.extend(open.take()),
        }
    }
    blocks.extend(open);
    blocks
}

fn push(block: &mut Block, line: &str) {
    block.text.push_str(line);
    block.text.push('\n');
}

/// Returns the words of each `basestream ..` command in a script, also after a prompt, `&&`, or `cargo run .. --`.
pub fn commands(script: &str) -> Vec<Vec<String>> {
    let lines = script.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in lines.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("> ").or(line.strip_prefix("$ ")).unwrap_or(line);
        found.extend(split(line).into_iter().filter_map(ours));
    }
    found
}

fn ours(words: Vec<String>) -> Option<Vec<String>> {
    match words.first()?.as_str() {
        "basestream" => Some(words),
        "cargo" if words.get(1).is_some_and(|word| word == "run") => {
            let after = words.iter().position(|word| word == "--")?;
            Some(std::iter::once("basestream".to_owned()).chain(words[after + 1..].iter().cloned()).collect())
        }
        _ => None,
    }
}

/// Splits a shell line into commands, each as words: quotes keep words together, `#` begins a comment, and `&&`, `|`,
/// `;`, `&` and `>` end a command. A `|` within brackets is the "or" of a synopsis.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut depth = 0;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '&' | ';' | '>') | (None, '|') if letter != '|' || depth == 0 => {
                commands.last_mut().into_iter().for_each(|words: &mut Vec<String>| words.extend(word.take()));
                commands.push(Vec::new());
            }
            (None, _) if letter.is_whitespace() => commands.last_mut().into_iter().for_each(|words| words.extend(word.take())),
            (None, _) => {
                depth += i32::from(letter == '[') - i32::from(letter == ']');
                word.get_or_insert_default().push(letter);
            }
        }
    }
    commands.last_mut().into_iter().for_each(|words| words.extend(word.take()));
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn blocks_are_found_fenced_and_indented() {
    let found = blocks("a\n\n    one\n\n    two\nb\n```sql fragment\nthree\n```\n");
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, &*found[0].text), (3, "one\n\ntwo\n"));
    assert_eq!((found[1].line, &*found[1].language, &*found[1].text, found[1].is_fragment()), (8, "sql", "three\n", true));
}

#[test]
fn commands_are_split_as_a_shell_would() {
    let found = commands(
        "cd shop && basestream query 'SELECT 1; x' --json | jq . # basestream no\n> basestream up &\ncargo run --release -- demo\nbasestream a [b | c]\n",
    );
    let expected: [&[&str]; 4] = [
        &["basestream", "query", "SELECT 1; x", "--json"],
        &["basestream", "up"],
        &["basestream", "demo"],
        &["basestream", "a", "[b", "|", "c]"],
    ];
    assert_eq!(found, expected);
}
