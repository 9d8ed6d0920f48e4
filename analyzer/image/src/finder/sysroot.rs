//! Resolves paths of the target inside a copy of its file system.
//!
//! Apart because a sysroot's symlinks are the target's: an absolute one starts at the sysroot, and
//! none may lead out of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::Arch;

/// Maximum number of symlinks, as in the kernel.
const LINK_LIMIT: usize = 40;

/// Resolves a target path below `root`. `None` if there is no such file.
pub(super) fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut todo: VecDeque<OsString> = VecDeque::new();
    prepend(&mut todo, path);
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            inside.pop();
            continue;
        }
        let next = inside.join(&name);
        let here = root.join(&next);
        let metadata = std::fs::symlink_metadata(&here).ok()?;
        if !metadata.is_symlink() {
            inside = next;
            continue;
        }
        links += 1;
        if links > LINK_LIMIT {
            return None;
        }
        let target = std::fs::read_link(&here).ok()?;
        if target.is_absolute() {
            inside = PathBuf::new();
        }
        prepend(&mut todo, &target);
    }
    Some(root.join(inside))
}

fn prepend(todo: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => todo.push_front(name.to_owned()),
            Component::ParentDir => todo.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

/// Possible places of a target's file, best first. They are its path, the same with and without
/// `/usr` (for copies without the links of a merged `/usr`), and for libraries the usual
/// directories.
pub(super) fn candidates(path: &str) -> Vec<String> {
    let mut candidates = Vec::new();
    if path.starts_with('/') {
        candidates.push(path.to_owned());
        match path.strip_prefix("/usr/") {
            Some(rest) => candidates.push(format!("/{rest}")),
            None => candidates.push(format!("/usr{path}")),
        }
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if !name.is_empty() && (!path.contains('/') || name.contains(".so")) {
        candidates.extend(library_paths(name));
    }
    if !path.starts_with('/') && path.contains('/') {
        candidates.push(format!("/{path}"));
    }
    let mut seen = std::collections::HashSet::new();
    candidates.retain(|candidate| seen.insert(candidate.clone()));
    candidates
}

fn library_paths(name: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for base in ["/lib", "/usr/lib"] {
        paths.push(format!("{base}/{name}"));
        for directory in Arch::ALL
            .iter()
            .flat_map(|arch| arch.multiarch_directories())
        {
            paths.push(format!("{base}/{directory}/{name}"));
        }
    }
    paths.extend(["/lib64", "/usr/lib64", "/usr/local/lib"].map(|base| format!("{base}/{name}")));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_tried_with_and_without_usr() {
        assert_eq!(candidates("/bin/xz"), ["/bin/xz", "/usr/bin/xz"]);
        assert_eq!(candidates("/usr/bin/xz"), ["/usr/bin/xz", "/bin/xz"]);
        let library = candidates("libc.so.6");
        assert!(library.contains(&"/usr/lib/arm-linux-gnueabihf/libc.so.6".to_owned()));
    }
}
