//! Tells functions apart that have one name, such as static functions of different files.
//!
//! Code of one function may come from several files, and copies of one function may be in several
//! places. So two pieces of code belong to different functions only if no function has code from
//! the files of both.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Profile, ProfileFunction};
use crate::model::backtrace::{NamedFrame, base_name};

/// The functions with one name in one module: the files of each.
type Files = Vec<BTreeSet<Arc<str>>>;

/// The functions that are not the only ones with their name in their module.
pub(super) struct Namesakes(HashMap<ProfileFunction, Files>);

impl Namesakes {
    pub(super) fn of(profile: &Profile) -> Namesakes {
        let mut codes: HashMap<ProfileFunction, HashMap<Option<u64>, BTreeSet<Arc<str>>>> =
            HashMap::new();
        for frame in profile.stacks.iter().flat_map(|stack| &stack.frames) {
            if let Some(file) = &frame.place.file {
                let start = frame.place.function_svma().filter(|_| !frame.inlined);
                let code = codes.entry(ProfileFunction::of(frame)).or_default();
                code.entry(start).or_default().insert(Arc::clone(file));
            }
        }
        let mut namesakes = HashMap::new();
        for (function, mut code) in codes {
            // Inlined code is in other functions, each piece on its own.
            let inlined = code.remove(&None).unwrap_or_default();
            let inlined = inlined.into_iter().map(|file| BTreeSet::from([file]));
            let files = code.into_values().chain(inlined).fold(Files::new(), join);
            if files.len() > 1 {
                namesakes.insert(function, files);
            }
        }
        Namesakes(namesakes)
    }

    /// The function of a frame. If others have its name, the name gets a file.
    pub(super) fn function(&self, frame: &NamedFrame) -> ProfileFunction {
        let mut function = ProfileFunction::of(frame);
        let (Some(others), Some(file)) = (self.0.get(&function), &frame.place.file) else {
            return function;
        };
        let own = others.iter().find(|files| files.contains(file));
        if let Some(file) = own.and_then(BTreeSet::first) {
            function.name = format!("{} ({})", function.name, base_name(file)).into();
        }
        function
    }
}

/// Adds the files of one more piece of code.
fn join(known: Files, mut files: BTreeSet<Arc<str>>) -> Files {
    let (same, mut others): (Files, Files) =
        (known.into_iter()).partition(|known| !known.is_disjoint(&files));
    files.extend(same.into_iter().flatten());
    others.push(files);
    others
}

#[cfg(test)]
mod tests {
    use unspool_unwind::Provenance;

    use super::*;
    use crate::model::{Backtrace, Place};

    /// The names in a profile of code with these functions, starts and files. Code without a start
    /// was inlined.
    fn names(code: &[(&str, Option<u64>, &str)]) -> Vec<String> {
        let frame = |(name, start, file): &(&str, Option<u64>, &str)| NamedFrame {
            place: Place {
                function: Some((*name).into()),
                module: Some("/bin/ld".into()),
                svma: Some(start.unwrap_or(0x1000) + 4),
                offset: 4,
                file: Some((*file).into()),
                ..Place::default()
            },
            inlined: start.is_none(),
            provenance: Provenance::Cfi,
            called: None,
        };
        let frames: Vec<NamedFrame> = code.iter().map(frame).collect();
        let profile = Profile {
            stacks: vec![Arc::new(Backtrace {
                frames: frames.clone(),
                truncated: None,
            })],
            ..Profile::default()
        };
        let namesakes = Namesakes::of(&profile);
        let name = |frame| namesakes.function(frame).name.to_string();
        frames.iter().map(name).collect()
    }

    #[test]
    fn functions_of_different_files_differ() {
        let code = [
            ("step", Some(0x2000), "/src/a.c"),
            ("step", Some(0x3000), "/src/b.c"),
            ("step", None, "/src/b.c"),
            ("main", Some(0x4000), "/src/a.c"),
        ];
        assert_eq!(
            names(&code),
            ["step (a.c)", "step (b.c)", "step (b.c)", "main"]
        );
    }

    #[test]
    fn copies_and_parts_of_a_function_are_one() {
        let copies = [
            ("hash", Some(0x2000), "/src/hash.h"),
            ("hash", Some(0x3000), "/src/hash.h"),
            ("hash", None, "/src/hash.h"),
        ];
        assert_eq!(names(&copies), ["hash"; 3]);
        let parser = [
            ("parse", Some(0x2000), "/src/parse.y"),
            ("parse", Some(0x2000), "/src/parse.c"),
            ("parse", None, "/src/parse.c"),
        ];
        assert_eq!(names(&parser), ["parse"; 3]);
    }
}
