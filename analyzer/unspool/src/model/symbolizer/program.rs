//! What the program's files say about its waits: the code at an address, the variable, the function
//! that a call goes to, and which C library there is.

use std::sync::Arc;

use memchr::memmem;
use unspool_image::{Arch, SymbolKind};

use super::Symbolizer;
use crate::c_library::{has_musl_inside, is_c_library, is_musl};
use crate::model::look::{Family, Library, Program};

/// Every address is looked up in the last epoch: a look has only one.
const LAST: usize = usize::MAX;

impl Program for Symbolizer {
    fn library(&mut self) -> Result<Library, String> {
        let mut seen = Vec::new();
        for load in 0..self.loads.len() {
            let c_library = is_c_library(&self.loads[load].path);
            if c_library || self.loads[load].record.executable {
                seen.push((load, c_library));
            }
        }
        // A library of its own first; a static program has it inside.
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
                    return Err(format!("the file of {path}, the C library, is missing"));
                }
                continue;
            };
            let bytes = image.bytes();
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
                return Err(format!("{path} is a C library of unknown layouts"));
            }
            let symbols = image.symbols();
            if !symbols.named("__pthread_mutex_lock_full").is_empty() {
                return of(Family::Glibc(None));
            }
            if has_musl_inside(image) {
                return of(Family::Musl);
            }
        }
        Err("there is no C library of known layouts".to_owned())
    }

    fn code(&mut self, avma: u64, len: usize) -> Option<Vec<u8>> {
        let (file, svma) = self.file_at(avma)?;
        Some(self.files.image(file)?.bytes_at(svma, len)?.to_vec())
    }

    fn variable(&mut self, avma: u64) -> Option<Arc<str>> {
        let (file, svma) = self.file_at(avma)?;
        let symbol = self.files.image(file)?.symbols().containing(svma)?;
        if symbol.kind == SymbolKind::Function {
            return None;
        }
        let name = unspool_image::demangle(symbol.name);
        Some(match svma - symbol.svma {
            0 => name.into(),
            offset => format!("{name}+{offset:#x}").into(),
        })
    }

    fn called(&mut self, return_avma: u64) -> Option<Arc<str>> {
        let target = match self.arch? {
            Arch::X86_64 => {
                // call rel32: e8 and four bytes (Intel SDM, CALL)
                let code = self.code(return_avma.checked_sub(5)?, 5)?;
                let distance = i32::from_le_bytes(code.get(1..5)?.try_into().ok()?);
                (code[0] == 0xe8).then(|| return_avma.wrapping_add_signed(distance.into()))
            }
            Arch::Aarch64 => {
                // 100101ii iiiiiiii iiiiiiii iiiiiiii, BL (ARM DDI 0487, C6.2)
                let at = return_avma.checked_sub(4)?;
                let word = u32::from_le_bytes(self.code(at, 4)?.try_into().ok()?);
                let distance = i64::from(((word << 6) as i32) >> 6) * 4;
                (word >> 26 == 0b100101).then(|| at.wrapping_add_signed(distance))
            }
            _ => self.called_by_arm(return_avma),
        }?;
        let (file, svma) = self.file_at(target)?;
        let symbol = self.files.image(file)?.symbols().containing(svma)?;
        (symbol.svma == svma).then(|| symbol.name.into())
    }
}

impl Symbolizer {
    /// Calls on ARM: the T32 and A32 forms of BL and BLX (ARM DDI 0406, A8.8.25).
    fn called_by_arm(&mut self, return_avma: u64) -> Option<u64> {
        let return_avma = return_avma & !1;
        let at = return_avma.checked_sub(4)?;
        let code = self.code(at, 4)?;
        let (file, svma) = self.file_at(at)?;
        let thumb = self.files.image(file)?.thumb_at(svma)?;
        if thumb {
            let first = u32::from(u16::from_le_bytes([code[0], code[1]]));
            let second = u32::from(u16::from_le_bytes([code[2], code[3]]));
            // 11110Siiiiiiiiii 11j1kiiiiiiiiiii
            if first >> 11 != 0b11110 || second >> 14 != 0b11 {
                return None;
            }
            let sign = first >> 10 & 1;
            let bit = |at: u32| !(second >> at & 1 ^ sign) & 1;
            let distance = (sign << 24
                | bit(13) << 23
                | bit(11) << 22
                | (first & 0x3ff) << 12
                | (second & 0x7ff) << 1)
                << 7;
            let distance = i64::from((distance as i32) >> 7);
            // To A32 code from the word that holds the instruction.
            let base = if second >> 12 & 1 == 1 {
                return_avma
            } else {
                return_avma & !3
            };
            return Some(base.wrapping_add_signed(distance));
        }
        let word = u32::from_le_bytes(code.try_into().ok()?);
        let distance = i64::from(((word << 8) as i32) >> 8) * 4;
        let base = return_avma.wrapping_add(4);
        match word >> 24 {
            0xeb => Some(base.wrapping_add_signed(distance)),
            0xfa | 0xfb => Some(base.wrapping_add_signed(distance + i64::from(word >> 24 & 1) * 2)),
            _ => None,
        }
    }

    fn file_at(&mut self, avma: u64) -> Option<(usize, u64)> {
        let epoch = self.epoch(LAST);
        let load = self.owner(epoch, avma)?;
        let load = &self.loads[load];
        let mask = if self.arch == Some(Arch::Arm) {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        Some((load.file, avma.wrapping_sub(load.record.bias) & mask))
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
