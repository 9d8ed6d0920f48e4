//! Rules for the text of comments and documents. `tidy.rs` checks the code.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use super::tidy::{files, none, read, sources};

/// Maximum width of a line of prose, in columns.
const MAX_COLUMNS: usize = 100;

/// Maximum number of words in a sentence of the README and the guides.
const MAX_SENTENCE_WORDS: usize = 35;

/// Documents for users, and their maximum numbers of lines.
const USER_DOCUMENTS: [(&str, usize); 2] = [("README.md", 120), ("docs/guide/", 150)];
const MAX_CHANGELOG_SECTION_LINES: usize = 60;

/// Maximum number of reports in the passive voice in 1,000 words of comments.
const MAX_PASSIVE_REPORTS: f64 = 0.3;

/// Openings of doc comments that describe an item by a question.
const RIDDLES: [&str; 6] = ["So many", "So long", "How long", "Whose", "Who ", "What is"];

/// Pronouns that hide the actor.
const VAGUE_ACTORS: [&str; 3] = ["nobody", "somebody", "whoever"];

/// Forms of passive reports.
const BE: [&str; 4] = ["is", "are", "was", "were"];
const REPORTS: [&str; 4] = ["told", "said", "noted", "asked"];

/// Names of constants that do not say which quantity they limit.
const VAGUE_CONSTANTS: [&str; 4] = ["AT_ONCE", "PATIENCE", "EVERY", "SHARE"];

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("line_width", line_width as fn() -> Result<()>),
        ("doc_openings", doc_openings),
        ("vague_actors", vague_actors),
        ("passive_reports", passive_reports),
        ("sentence_length", sentence_length),
        ("constant_names", constant_names),
        ("document_length", document_length),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("prose::{name}"), check))
    .collect()
}

/// Lines of documents and comments fit into 100 columns.
fn line_width() -> Result<()> {
    let rule = "lines of prose have at most 100 columns";
    let mut wide = Vec::new();
    for path in documents()? {
        for (number, line) in prose(&read(&path)?) {
            // A link cannot be broken.
            if !line.contains("](") && line.chars().count() > MAX_COLUMNS {
                wide.push(format!("{path}:{number}: {line}"));
            }
        }
    }
    none(wide, rule)?;
    no_comment(rule, |comment| comment.columns > MAX_COLUMNS)
}

/// The first line of a doc comment says what the item is or does.
fn doc_openings() -> Result<()> {
    no_comment("a doc comment says what the item is or does", |comment| {
        RIDDLES
            .iter()
            .any(|riddle| comment.opening.starts_with(riddle))
    })
}

/// Comments name the actor.
fn vague_actors() -> Result<()> {
    no_comment("a comment names the actor", |comment| {
        words(&comment.text).any(|word| VAGUE_ACTORS.contains(&&*word.to_lowercase()))
    })
}

/// Comments say who reports to whom, in the active voice.
fn passive_reports() -> Result<()> {
    let mut all = Vec::new();
    for comment in comments()? {
        all.extend(words(&comment.text).map(str::to_lowercase));
    }
    let is_passive = |pair: &&[String]| {
        let [verb, report] = [&*pair[0], &*pair[1]];
        BE.contains(&verb) && REPORTS.contains(&report)
    };
    let passive = all.windows(2).filter(is_passive).count();
    let rate = passive as f64 * 1000.0 / all.len() as f64;
    ensure!(
        rate <= MAX_PASSIVE_REPORTS,
        "{passive} passive reports in comments are {rate:.2} in 1,000 words"
    );
    Ok(())
}

/// A sentence of the README or of a guide is understood at the first reading.
fn sentence_length() -> Result<()> {
    let mut long = Vec::new();
    for (path, _) in user_documents()? {
        for paragraph in paragraphs(&read(&path)?) {
            for sentence in sentences(&paragraph) {
                if sentence.len() > MAX_SENTENCE_WORDS {
                    long.push(format!("{path}: {}", sentence.join(" ")));
                }
            }
        }
    }
    none(long, "a sentence for users has at most 35 words")
}

/// A constant names its quantity.
fn constant_names() -> Result<()> {
    let mut vague = Vec::new();
    for file in sources()? {
        for (number, line) in file.text.lines().enumerate() {
            let mut words = words(line).skip_while(|word| !["const", "static"].contains(word));
            let name = words.nth(1).unwrap_or_default();
            if name.starts_with("MOST") || VAGUE_CONSTANTS.contains(&name) {
                vague.push(format!("{}:{}: {name}", file.path, number + 1));
            }
        }
    }
    none(vague, "a constant names its quantity")
}

/// Documents that a user reads from the beginning to the end are short.
fn document_length() -> Result<()> {
    let mut long = Vec::new();
    for (path, limit) in user_documents()? {
        let lines = read(&path)?.lines().count();
        if lines > limit {
            long.push(format!("{path}: {lines} lines, at most {limit}"));
        }
    }
    let changes = read("CHANGELOG.md")?;
    let newest = changes.split("\n## ").nth(1);
    let lines = newest.context("no section")?.lines().count();
    if lines > MAX_CHANGELOG_SECTION_LINES {
        long.push(format!("CHANGELOG.md: {lines} lines in the newest section"));
    }
    none(long, "documents for users are short")
}

/// A line of a Rust file that is a comment.
struct Comment {
    /// `path:line`.
    place: String,
    /// Width of the line with its indentation.
    columns: usize,
    text: String,
    /// The text, if the line begins a doc comment.
    opening: String,
}

/// All comment lines of the Rust files. Comments after code on the same line are left out.
fn comments() -> Result<Vec<Comment>> {
    let mut comments = Vec::new();
    for file in sources()? {
        let mut before = "";
        for (number, line) in file.text.lines().enumerate() {
            let trimmed = line.trim_start();
            let mut markers = ["///", "//!", "//"].into_iter();
            let marker = markers.find(|marker| trimmed.starts_with(marker));
            if let Some(marker) = marker {
                let text = trimmed[marker.len()..].trim();
                let opens = marker != "//" && before != marker;
                comments.push(Comment {
                    place: format!("{}:{}", file.path, number + 1),
                    columns: line.chars().count(),
                    text: text.to_owned(),
                    opening: if opens { text } else { "" }.to_owned(),
                });
            }
            before = marker.unwrap_or_default();
        }
    }
    Ok(comments)
}

fn no_comment(rule: &str, forbidden: impl Fn(&Comment) -> bool) -> Result<()> {
    let found = comments()?.into_iter().filter(forbidden);
    let found = found.map(|comment| format!("{}: {}", comment.place, comment.text));
    none(found, rule)
}

fn documents() -> Result<Vec<String>> {
    let mut files = files()?;
    files.retain(|path| path.ends_with(".md"));
    Ok(files)
}

/// The documents for users with their maximum numbers of lines.
fn user_documents() -> Result<Vec<(String, usize)>> {
    let limited = |path: String| {
        let (_, limit) = USER_DOCUMENTS
            .iter()
            .find(|(begin, _)| path.starts_with(begin))?;
        Some((path, *limit))
    };
    Ok(documents()?.into_iter().filter_map(limited).collect())
}

/// The numbered lines of a document outside code blocks and tables.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        if !in_code && !fence && !line.starts_with('|') && !line.starts_with("    ") {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// The paragraphs of a document, each on one line. A heading and a list item are paragraphs.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut before = 0;
    for (number, line) in prose(text) {
        let starts = line.is_empty() || line.starts_with(['#', '-']) || number != before + 1;
        if starts {
            paragraphs.push(String::new());
        }
        if let Some(paragraph) = paragraphs.last_mut() {
            paragraph.push_str(line.trim());
            paragraph.push(' ');
        }
        before = number;
    }
    paragraphs
}

/// The words of each sentence.
fn sentences(paragraph: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let ends = |word: &&str| word.ends_with(['.', '!', '?']);
    words.split_inclusive(ends).map(<[_]>::to_vec).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\''));
    words.filter(|word| !word.is_empty())
}
