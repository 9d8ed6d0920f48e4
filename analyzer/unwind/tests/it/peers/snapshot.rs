//! A snapshot of one thread: registers, stack and mappings.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_image::Image;

/// Maximum size of a stored stack, in bytes.
const MAX_STACK: u64 = 4 << 20;

/// A mapped file and its bias.
#[derive(Clone)]
pub(crate) struct Mapped {
    pub(crate) path: PathBuf,
    pub(crate) bias: u64,
    pub(crate) image: Image,
}

pub(crate) struct Snapshot {
    pub(crate) modules: Arc<Vec<Mapped>>,
    pub(crate) registers: HashMap<String, u64>,
    pub(crate) base: u64,
    pub(crate) stack: Vec<u8>,
}

/// The mappings of a process, as far as they are known.
#[derive(Default)]
pub(crate) struct Modules {
    images: HashMap<PathBuf, Option<Image>>,
    mapped: Arc<Vec<Mapped>>,
    starts: Vec<(u64, PathBuf)>,
}

impl Modules {
    /// The modules, and the end of the mapping that contains `sp`.
    pub(crate) fn read(&mut self, pid: u32, sp: u64, scratch: &Path) -> (Arc<Vec<Mapped>>, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        let mut end = sp;
        let mut lowest: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (from, to) = words.next().expect("range").split_once('-').expect("range");
            let (from, to) = (hex(from), hex(to));
            if (from..to).contains(&sp) {
                end = to;
            }
            let Some(name) = words.nth(4) else { continue };
            let path = match name {
                "[vdso]" => {
                    let path = scratch.join(format!("vdso-{pid}"));
                    if !path.exists() {
                        std::fs::write(&path, memory(pid, from, (to - from) as usize))
                            .expect("vdso");
                    }
                    path
                }
                name if name.starts_with('/') => PathBuf::from(name),
                _ => continue,
            };
            lowest.entry(path).or_insert(from);
        }
        let starts: Vec<(u64, PathBuf)> = lowest
            .into_iter()
            .map(|(path, start)| (start, path))
            .collect();
        if starts != self.starts {
            let mapped = starts.iter().filter_map(|(start, path)| {
                let known = self.images.entry(path.clone());
                let image = known.or_insert_with(|| Image::open(path).ok()).clone()?;
                let first = image.segments().first()?.svma & !0xfff;
                Some(Mapped {
                    path: path.clone(),
                    bias: start.wrapping_sub(first),
                    image,
                })
            });
            self.mapped = Arc::new(mapped.collect());
            self.starts = starts;
        }
        (self.mapped.clone(), end)
    }
}

/// A thread's stack up to the end of its mapping, and its start. It includes the red zone below
/// `sp` (x86-64 psABI, 3.2.2): CFI names slots of popped registers there, and libunwind reads them.
pub(crate) fn stack(pid: u32, sp: u64, end: u64) -> (u64, Vec<u8>) {
    let base = sp - 128;
    (
        base,
        memory(pid, base, (end - base).min(MAX_STACK) as usize),
    )
}

fn memory(pid: u32, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = File::open(format!("/proc/{pid}/mem")).expect("memory");
    file.read_exact_at(&mut bytes, at).expect("memory");
    bytes
}

pub(crate) fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("hex number")
}
