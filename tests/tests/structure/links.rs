//! The relative links of the pages that the documentation site does not have: the file is there, and so is the heading.
//! (`docs/build` checks those of the site.)

use std::path::{Path, PathBuf};

use crate::{files_below, root};

#[test]
fn links_lead_to_files_and_headings() {
    let (mut checked, mut broken) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&without_blocks(&text)) {
            checked += 1;
            if let Err(why) = check(&page, link) {
                broken.push(format!("{}: {link}: {why}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(checked > 50, "found {checked} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/RESULTS.md"]
        .iter()
        .map(|page| root().join(page))
        .collect();
    pages.extend(files_below(&root().join("examples"), ".md"));
    pages
}

fn check(page: &Path, link: &str) -> Result<(), &'static str> {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { page.to_path_buf() } else { page.with_file_name(path) };
    if !target.exists() {
        return Err("there is no such file");
    }
    let Some(heading) = heading else { return Ok(()) };
    let text = std::fs::read_to_string(&target).map_err(|_| "only a page has headings")?;
    let is_it = |line: &str| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading;
    if without_blocks(&text).lines().any(is_it) { Ok(()) } else { Err("there is no such heading") }
}

/// The targets of `[text](target)` that lead to no other host.
fn links(markdown: &str) -> Vec<&str> {
    let targets = markdown.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://")).collect()
}

/// As GitHub names a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' '));
    letters.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn without_blocks(markdown: &str) -> String {
    let mut is_inside = false;
    let mut text = String::new();
    for line in markdown.lines() {
        let is_border = line.trim_start().starts_with("```");
        if !is_inside && !is_border {
            text.push_str(line);
            text.push('\n');
        }
        is_inside ^= is_border;
    }
    text
}

#[test]
fn a_link_to_what_is_not_there_is_found() {
    let page = root().join("README.md");
    assert_eq!(check(&page, "examples/payments/README.md"), Ok(()));
    assert_eq!(check(&page, "ARCHITECTURE.md#to-change-x-open-y"), Ok(()));
    assert_eq!(check(&page, "ARCHITECTURES.md"), Err("there is no such file"));
    assert_eq!(check(&page, "ARCHITECTURE.md#to-change-y"), Err("there is no such heading"));
    let text = "[a](b.md) and [c\nd](https://e.f) [g](h.md#i)\n```\n[j](k.md)\n```\n";
    assert_eq!(links(&without_blocks(text)), ["b.md", "h.md#i"]);
    assert_eq!(anchor(" `system.hot_keys`, and \"More\""), "systemhot_keys-and-more");
}
