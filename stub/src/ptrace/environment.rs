//! The environment of a program: the strings as execve(2) gets them. Their order, repeated names
//! and strings without `=` are kept, because a program may depend on each of them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The strings of an environment.
#[derive(Clone, Default)]
pub(crate) struct Environment(Vec<OsString>);

impl Environment {
    /// The environment that this process was started with.
    pub(crate) fn own() -> Environment {
        match fs::read("/proc/self/environ") {
            Ok(bytes) => Environment::parse(&bytes),
            // Without `/proc`, what the standard library keeps of it.
            Err(_) => Environment(
                std::env::vars_os()
                    .map(|(key, value)| entry(&key, &value))
                    .collect(),
            ),
        }
    }

    /// Parses the contents of `/proc/PID/environ`: each string with a NUL behind it.
    fn parse(bytes: &[u8]) -> Environment {
        let strings = bytes
            .strip_suffix(&[0])
            .map(|rest| rest.split(|byte| *byte == 0));
        let strings = strings.into_iter().flatten();
        Environment(
            strings
                .map(|string| OsString::from_vec(string.to_vec()))
                .collect(),
        )
    }

    /// All strings.
    pub(crate) fn strings(&self) -> &[OsString] {
        &self.0
    }

    /// The value of a variable: that of its first string, as getenv(3) finds it.
    pub(crate) fn get(&self, key: &OsStr) -> Option<&OsStr> {
        self.0.iter().find_map(|string| value(string, key))
    }

    /// Sets a variable. It has one string then.
    pub(crate) fn set(&mut self, key: &OsStr, new: &OsStr) {
        let at = self
            .0
            .iter()
            .position(|string| value(string, key).is_some());
        let at = at.unwrap_or(self.0.len());
        self.remove(key);
        self.0.insert(at, entry(key, new));
    }

    /// Removes all strings of a variable.
    pub(crate) fn remove(&mut self, key: &OsStr) {
        self.0.retain(|string| value(string, key).is_none());
    }
}

fn entry(key: &OsStr, value: &OsStr) -> OsString {
    [key, OsStr::new("="), value].into_iter().collect()
}

/// The value in a string, if it is one of this variable.
fn value<'a>(string: &'a OsStr, key: &OsStr) -> Option<&'a OsStr> {
    let rest = string.as_bytes().strip_prefix(key.as_bytes())?;
    rest.strip_prefix(b"=").map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_order_and_repetitions() {
        let mut environment = Environment::parse(b"Z=1\0A=1\0noequals\0\0A=2\0");
        let strings = |environment: &Environment| -> Vec<String> {
            let strings = environment.strings().iter();
            strings
                .map(|string| string.to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(strings(&environment), ["Z=1", "A=1", "noequals", "", "A=2"]);
        let key = OsStr::new("A");
        assert_eq!(environment.get(key), Some(OsStr::new("1")));
        assert_eq!(environment.get(OsStr::new("noequals")), None);
        environment.set(key, OsStr::new("3"));
        environment.set(OsStr::new("B"), OsStr::new(""));
        assert_eq!(strings(&environment), ["Z=1", "A=3", "noequals", "", "B="]);
        environment.remove(key);
        assert_eq!(strings(&environment), ["Z=1", "noequals", "", "B="]);
        assert!(Environment::parse(b"").strings().is_empty());
    }
}
