//! Joins the page's style, code and data into one file.
//!
//! To join the modules, `import` lines and the word `export` are removed. So no two modules may
//! declare the same name, and a module follows the modules that it imports. The page's content
//! security policy allows only this style and this script, and no network.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

/// The name and the text of a file of the page.
type Part = (&'static str, &'static str);

/// A page: what it shows and the parts that it is joined from.
pub(super) struct Kind {
    /// What readers see until the script has decoded the data.
    loading: &'static str,
    styles: &'static [Part],
    /// Lists of modules, all in the order of their imports.
    modules: &'static [&'static [Part]],
}

macro_rules! part {
    ($name:literal) => {
        ($name, include_str!(concat!("page/", $name)))
    };
}

/// The modules of all pages.
const BASE: &[Part] = &[
    part!("format.js"),
    part!("dom.js"),
    part!("embedded.js"),
    part!("opening.js"),
];

/// The modules of pages that consist of tables.
const TABLE: &[Part] = &[
    part!("location.js"),
    part!("table_rows.js"),
    part!("table.js"),
];

/// The report of a recording.
pub(super) const REPORT: Kind = Kind {
    loading: "Opening the recording ...",
    styles: &[part!("style.css")],
    modules: &[
        BASE,
        &[
            part!("states.js"),
            part!("range.js"),
            part!("data.js"),
            part!("location.js"),
            part!("groups.js"),
            part!("links.js"),
            part!("lock_waits.js"),
            part!("details.js"),
            part!("findings.js"),
            part!("lanes.js"),
            part!("path.js"),
            part!("overview.js"),
            part!("threads.js"),
            part!("paint.js"),
            part!("draw.js"),
            part!("timeline.js"),
            part!("order_layout.js"),
            part!("lock_order.js"),
            part!("sync.js"),
            part!("flame.js"),
            part!("source.js"),
            part!("main.js"),
        ],
    ],
};

/// The comparison of recordings.
pub(super) const DIFF: Kind = Kind {
    loading: "Opening the comparison ...",
    styles: &[part!("style.css"), part!("table.css"), part!("diff.css")],
    modules: &[
        BASE,
        TABLE,
        &[
            part!("diff_values.js"),
            part!("diff_subjects.js"),
            part!("diff_details.js"),
            part!("diff_headline.js"),
            part!("diff_path.js"),
            part!("diff_sections.js"),
            part!("diff_main.js"),
        ],
    ],
};

/// A call graph.
pub(super) const CALLS: Kind = Kind {
    loading: "Opening the call graph ...",
    styles: &[part!("style.css"), part!("table.css"), part!("calls.css")],
    modules: &[BASE, TABLE, &[part!("calls_main.js")]],
};

/// Writes a page with this compressed data. `name` is the program's name.
pub(super) fn write(kind: &Kind, name: &str, data: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let script = script(&kind.modules.concat());
    let style: String = kind.styles.iter().map(|(_, text)| *text).collect();
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{} - Unspool</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <div id=\"app\"><p class=\"loading\">{}</p></div>\n\
         <noscript><p class=\"loading\">This report needs JavaScript, which is switched off in \
         this browser.</p></noscript>\n\
         <script type=\"text/plain\" id=\"recording\">{}</script>\n\
         <script type=\"module\">{script}</script>\n</body>\n</html>\n",
        sha256(&script),
        sha256(&style),
        escaped(name),
        kind.loading,
        BASE64.encode(data),
    )
}

/// Joins all modules.
fn script(modules: &[Part]) -> String {
    let mut script = String::from("\n");
    for (name, text) in modules {
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
        for kind in [REPORT, DIFF, CALLS] {
            follow_their_imports(&kind.modules.concat());
        }
    }

    fn follow_their_imports(modules: &[Part]) {
        for (at, (name, text)) in modules.iter().enumerate() {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let (names, from) = imported(line).unwrap_or_else(|| panic!("{name}: {line}"));
                let before = modules[..at].iter().find(|(before, _)| *before == from);
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
        for kind in [REPORT, DIFF, CALLS] {
            declare_each_name_once(&kind.modules.concat());
        }
    }

    fn declare_each_name_once(modules: &[Part]) {
        let mut seen = std::collections::HashMap::new();
        for (name, text) in modules {
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
        let name = "</title><script>alert(1)</script>";
        for kind in [REPORT, DIFF, CALLS] {
            let mut page = Vec::new();
            write(&kind, name, b"data", &mut page).unwrap();
            let page = String::from_utf8(page).unwrap();
            assert!(!page.contains("alert(1)</script>"));
            assert_eq!(page.matches("<script").count(), 2);
            assert_eq!(page.matches("</script").count(), 2);
        }
    }
}
