//! Reads facts about waits from the program's files: code, variables, and the C library.

use std::sync::Arc;

use memchr::memmem;

use super::Symbolizer;
use crate::model::inspection::{Family, Library};
use crate::platform::c_library::{has_musl_inside, is_c_library, is_musl};

/// Every address is looked up in the last epoch, because an inspection has only one.
pub(super) const LAST: usize = usize::MAX;

impl Symbolizer {
    pub(super) fn library_by_files(&mut self) -> Result<Library, String> {
        let mut seen = Vec::new();
        for load in 0..self.modules.len() {
            let c_library = is_c_library(&self.loads[load].path);
            if c_library || self.loads[load].record.executable {
                seen.push((load, c_library));
            }
        }
        // A separate library comes first; a static program contains it.
        seen.sort_by_key(|(_, c_library)| !c_library);
        for (load, c_library) in seen {
            let file = self.loads[load].file;
            let path = self.loads[load].path.clone();
            let of = |family| {
                Ok(Library {
                    family,
                    path: path.clone(),
                    inside: !c_library,
                })
            };
            if is_musl(&path) {
                return of(Family::Musl);
            }
            let Some(image) = self.files.image(file) else {
                if c_library {
                    return Err(format!("{path}, the C library, is missing"));
                }
                continue;
            };
            let constants = image.section(".rodata");
            let bytes = match &constants {
                Some(section) => &section.data,
                None => image.bytes(),
            };
            if let Some(at) = memmem::find(bytes, b"GNU C Library (") {
                let text = bytes
                    .get(at..(at + 200).min(bytes.len()))
                    .unwrap_or_default();
                return match (minor_version(text), c_library) {
                    (None, true) => Err(format!("{path} is a glibc of unknown version")),
                    (version, _) => of(Family::Glibc(version)),
                };
            }
            if memmem::find(bytes, b"musl libc (").is_some() {
                return of(Family::Musl);
            }
            if c_library {
                return Err(format!(
                    "{path} is a C library whose structure layouts Unspool does not know"
                ));
            }
            let symbols = image.symbols();
            if !symbols.named("__pthread_mutex_lock_full").is_empty() {
                return of(Family::Glibc(None));
            }
            if has_musl_inside(image) {
                return of(Family::Musl);
            }
        }
        Err("there is no C library whose structure layouts Unspool knows".to_owned())
    }

    pub(super) fn code_by_files(&mut self, avma: u64, len: usize) -> Option<Vec<u8>> {
        let epoch = self.epoch(LAST);
        self.code_at(epoch, avma, len)
    }

    pub(super) fn variable_by_files(&mut self, record: usize, avma: u64) -> Option<Arc<str>> {
        let epoch = self.epoch(record);
        let (file, svma) = self.file_at(epoch, avma)?;
        if let Some(name) = self.variable_at(file, svma) {
            return Some(name);
        }
        let symbol = self.files.data_symbol(file, svma)?;
        let name = symbol.name;
        Some(match svma - symbol.start {
            0 => name.into(),
            offset => format!("{name}+{offset:#x}").into(),
        })
    }
}

/// `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn minor_version(banner: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(banner);
    let version = text.split_once("release version 2.")?.1;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let of = |text: &str| minor_version(text.as_bytes());
        assert_eq!(
            of("GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopy"),
            Some(36)
        );
        assert_eq!(
            of("GNU C Library (GNU libc) development release version 2.41.9000."),
            Some(41)
        );
        assert_eq!(of("GNU C Library (something else)"), None);
    }
}
