//! Joins the page's style, code and data into one file.
//!
//! To join the modules, `import` lines and the word `export` are removed. So no two modules may
//! declare the same name, and a module follows the modules that it imports. The page's content
//! security policy allows only this style and this script, and no network.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

/// The modules in the order of their imports.
const MODULES: &[(&str, &str)] = &[
    ("format.js", include_str!("page/format.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("states.js", include_str!("page/states.js")),
    ("data.js", include_str!("page/data.js")),
    ("location.js", include_str!("page/location.js")),
    ("groups.js", include_str!("page/groups.js")),
    ("range.js", include_str!("page/range.js")),
    ("links.js", include_str!("page/links.js")),
    ("details.js", include_str!("page/details.js")),
    ("findings.js", include_str!("page/findings.js")),
    ("lanes.js", include_str!("page/lanes.js")),
    ("path.js", include_str!("page/path.js")),
    ("overview.js", include_str!("page/overview.js")),
    ("threads.js", include_str!("page/threads.js")),
    ("paint.js", include_str!("page/paint.js")),
    ("draw.js", include_str!("page/draw.js")),
    ("timeline.js", include_str!("page/timeline.js")),
    ("sync.js", include_str!("page/sync.js")),
    ("flame.js", include_str!("page/flame.js")),
    ("source.js", include_str!("page/source.js")),
    ("main.js", include_str!("page/main.js")),
];

const STYLE: &str = include_str!("page/style.css");

/// Writes the page with this compressed data. `name` is the program's name.
pub(super) fn write(name: &str, data: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let script = script();
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{} - Unspool</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <div id=\"app\"><p class=\"loading\">Opening the recording ...</p></div>\n\
         <noscript><p class=\"loading\">This report needs JavaScript, which is switched off in \
         this browser.</p></noscript>\n\
         <script type=\"text/plain\" id=\"recording\">{}</script>\n\
         <script type=\"module\">{script}</script>\n</body>\n</html>\n",
        sha256(&script),
        sha256(STYLE),
        escaped(name),
        BASE64.encode(data),
    )
}

/// Joins all modules.
fn script() -> String {
    let mut script = String::from("\n");
    for (name, text) in MODULES {
        script += &format!("// ---- {name}\n");
        for line in text.lines().filter(|line| !line.starts_with("import ")) {
            script += line.strip_prefix("export ").unwrap_or(line);
            script.push('\n');
        }
    }
    script
}

fn sha256(text: &str) -> String {
    BASE64.encode(Sha256::digest(text.as_bytes()))
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            character if character.is_control() => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in an `import` line, and its module.
    fn imported(line: &str) -> Option<(Vec<&str>, &str)> {
        let (names, from) = line.strip_prefix("import {")?.split_once("} from './")?;
        let names = names.split(',').map(str::trim).collect();
        Some((names, from.trim_end_matches("';")))
    }

    #[test]
    fn modules_follow_what_they_import() {
        for (at, (name, text)) in MODULES.iter().enumerate() {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let (names, from) = imported(line).unwrap_or_else(|| panic!("{name}: {line}"));
                let before = MODULES[..at].iter().find(|(before, _)| *before == from);
                let (_, before) =
                    before.unwrap_or_else(|| panic!("{name} imports {from} too early"));
                for wanted in names {
                    let exports = before.lines().any(|line| {
                        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                        line.starts_with("export ") && words.any(|word| word == wanted)
                    });
                    assert!(exports, "{name}: {from} does not export {wanted}");
                }
            }
        }
    }

    #[test]
    fn no_name_is_declared_twice() {
        let mut seen = std::collections::HashMap::new();
        for (name, text) in MODULES {
            for line in text.lines() {
                let line = line.strip_prefix("export ").unwrap_or(line);
                let line = line.strip_prefix("async ").unwrap_or(line);
                let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                if matches!(words.next(), Some("const" | "let" | "function" | "class"))
                    && let Some(declared) = words.next().filter(|word| !word.is_empty())
                    && let Some(other) = seen.insert(declared, name)
                {
                    panic!("{declared} is declared in {other} and in {name}");
                }
            }
        }
    }

    #[test]
    fn text_cannot_end_its_element() {
        let mut page = Vec::new();
        write("</title><script>alert(1)</script>", b"data", &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("alert(1)</script>"));
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
    }
}
