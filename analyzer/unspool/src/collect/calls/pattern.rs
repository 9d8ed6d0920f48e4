//! Patterns of `--trace`: a glob over symbols, optionally preceded by a glob over files and a
//! colon.

use std::fmt;
use std::str::FromStr;

use unspool_image::function_name;

/// A pattern for functions: `parse_*`, `Orders::*`, `libz.so*:deflate`. `*` matches any characters
/// and `?` matches one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    file: Option<String>,
    function: String,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let bytes = text.as_bytes();
        let single = |&at: &usize| {
            bytes[at] == b':'
                && bytes.get(at + 1) != Some(&b':')
                && (at == 0 || bytes[at - 1] != b':')
        };
        let colon = (0..bytes.len()).find(single);
        let (file, function) = match colon {
            Some(at) => (Some(text[..at].to_owned()), text[at + 1..].to_owned()),
            None => (None, text.to_owned()),
        };
        if function.is_empty() || file.as_deref() == Some("") {
            return Err(
                "expected a function's name or FILE:NAME, in which * stands for any characters \
                 and ? for one"
                    .to_owned(),
            );
        }
        Ok(Pattern {
            text: text.to_owned(),
            file,
            function,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// True if the pattern may match functions of a file. `paths` has the file's own path and that
    /// of a link to it.
    pub(super) fn is_in(&self, paths: &[&str]) -> bool {
        self.file.as_ref().is_none_or(|file| {
            paths.iter().any(|path| {
                let base = path.rsplit('/').next().unwrap_or(path);
                matches(file, if file.contains('/') { path } else { base })
            })
        })
    }

    /// True if the pattern matches a symbol.
    pub(super) fn names(&self, symbol: &str) -> bool {
        if matches(&self.function, symbol) {
            return true;
        }
        // Prefixes of mangled names (Itanium C++ ABI and Rust). Other symbols are not mangled.
        (symbol.starts_with("_Z") || symbol.starts_with("_R"))
            && matches(&self.function, &function_name(symbol))
    }
}

/// True if a glob matches all of `text`.
pub(in crate::collect) fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // Position after the last star, and the end of the text that it matched.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if g < glob.len() && glob[g] == b'*' {
            star = Some((g, t));
            g += 1;
        } else if g < glob.len() && (glob[g] == b'?' || glob[g] == text[t]) {
            (g, t) = (g + 1, t + 1);
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (g, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, text, whether) in [
            ("malloc", "malloc", true),
            ("malloc", "mallocx", false),
            ("m*c", "malloc", true),
            ("m*c", "magic", true),
            ("m*c", "malloc2", false),
            ("*", "", true),
            ("a?c*", "abcdef", true),
            ("*lock*", "pthread_mutex_unlock", true),
            ("**x", "aax", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(glob, text), whether, "{glob} {text}");
        }
    }

    #[test]
    fn files_and_functions() {
        let pattern: Pattern = "libz.so*:inflate*".parse().unwrap();
        assert!(pattern.is_in(&["/usr/lib/libz.so.1.2"]) && !pattern.is_in(&["/usr/bin/libz"]));
        assert!(pattern.names("inflateInit2_") && !pattern.names("deflate"));
        let method: Pattern = "Orders::*".parse().unwrap();
        assert!(method.is_in(&["/bin/anything"]));
        assert!(method.names("_ZN6Orders6submitEi") && !method.names("_ZN5Other6submitEi"));
        let both: Pattern = "orders:Orders::submit".parse().unwrap();
        assert!(both.is_in(&["/bin/orders"]) && !both.is_in(&["/bin/order"]));
        assert!(both.is_in(&["/srv/shop", "./orders"]) && !both.is_in(&["/srv/shop", "./start"]));
        assert!(both.names("_ZN6Orders6submitEi"));
        assert!("".parse::<Pattern>().is_err() && ":x".parse::<Pattern>().is_err());
        assert!("libc.so.6:".parse::<Pattern>().is_err());
    }
}
