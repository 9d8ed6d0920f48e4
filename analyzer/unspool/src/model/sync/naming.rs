//! Names objects by their variable, or by where they come from.
//!
//! One function of a program may make all its locks, and its name then distinguishes none of them.
//! Objects of different identities then get as many outer frames as needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::objects::Object;
use crate::model::backtrace::{Backtrace, NamedFrame, Place, base_name};
use crate::model::identity::Key;
use crate::model::origin::begins_threads;
use crate::model::thread::Thread;
use crate::primitives;

/// The name of an object: its variable, or where it comes from.
pub(super) fn name_of(object: &Object, origin: Option<&Backtrace>) -> Option<Arc<str>> {
    let (symbol, part) = (object.symbol.as_ref(), object.part.as_ref());
    if let Some(name) = variable_name(symbol, part, object.word) {
        return Some(name);
    }
    let frame = caller(origin?)?;
    let apart = object.apart.as_deref().unwrap_or_default();
    let verb = match (object.made, object.kind, object.joined_as.as_deref()) {
        (true, ..) => "made",
        (false, primitives::Kind::Join, Some(thread)) => &format!("{thread} joined"),
        (false, primitives::Kind::Join, None) => "joined",
        (false, ..) => "first used",
    };
    Some(format!("{verb} in {}{apart}", place(frame)).into())
}

/// The name of an object that is in a variable, or is a part of it. With `is_word`, the address is
/// one inside the object.
pub(in crate::model) fn variable_name(
    symbol: Option<&Place>,
    part: Option<&Arc<str>>,
    is_word: bool,
) -> Option<Arc<str>> {
    if let Some(part) = part.filter(|_| !is_word) {
        return Some(part.clone());
    }
    let symbol = symbol?;
    let name = symbol.function.as_deref()?;
    Some(match symbol.offset {
        0 => name.into(),
        // An offset within the object, by the size of the largest object of a C library.
        ..64 if is_word => name.into(),
        offset => format!("{name}+{offset:#x}").into(),
    })
}

/// Gives joined threads their names: the function, or else the thread's own name. Objects with the
/// same identity are shown together, so they get a name only if they have the same.
pub(super) fn name_joined(objects: &mut [Object], threads: &[Thread]) {
    let name = |object: &Object| {
        let thread = threads.get(object.joined?.0)?;
        let function = thread
            .function
            .as_ref()
            .and_then(|place| place.function.clone());
        let own = Some(thread.name.as_str()).filter(|name| !name.is_empty());
        function.or_else(|| own.map(Arc::from))
    };
    let is_join = |object: &Object| object.kind == primitives::Kind::Join;
    let mut names: HashMap<Key, Option<Arc<str>>> = HashMap::new();
    for object in objects.iter().filter(|object| is_join(object)) {
        let Some(own) = name(object) else { continue };
        let known = names.entry(object.key).or_insert_with(|| Some(own.clone()));
        known.take_if(|known| *known != own);
    }
    for object in objects.iter_mut().filter(|object| is_join(object)) {
        object.joined_as = names.get(&object.key).cloned().flatten();
    }
}

/// The innermost frame outside the primitive, its wrappers in the language's library, and the C
/// library's internals.
pub(crate) fn caller(path: &Backtrace) -> Option<&NamedFrame> {
    let name = |frame: &NamedFrame| {
        let name = frame.place.function.clone().unwrap_or_default();
        name.trim_start_matches('<').to_owned()
    };
    let covers = |frame: &NamedFrame| {
        let name = name(frame);
        primitives::find(&name).is_some()
            || frame.place.is_low() && (begins_threads(&name) || name.starts_with("__lll_"))
            || ["std::", "__gthread", "core::", "alloc::"]
                .iter()
                .any(|start| name.starts_with(start))
    };
    // The primitive itself may be unnamed.
    let frames = &path.frames;
    let is_primitive = |frame: &NamedFrame| {
        let called = frame.called.as_deref().unwrap_or_default();
        primitives::find(&name(frame)).is_some() || primitives::find(called).is_some()
    };
    let primitive = frames.iter().position(is_primitive).unwrap_or(0);
    let outside = frames.get(primitive + 1..)?;
    let own = outside.iter().find(|frame| !covers(frame));
    own.or(outside.first())
}

/// Formats the place of a frame, as `push (queue.c:31)`.
pub(crate) fn place(frame: &NamedFrame) -> String {
    place_text(&frame.place)
}

/// Formats a place, as `push (queue.c:31)`.
pub(crate) fn place_text(place: &Place) -> String {
    let name = match (&place.function, place.shown_module()) {
        (Some(name), _) => name.to_string(),
        (None, Some(module)) => format!("{module}+{:#x}", place.svma.unwrap_or(place.offset)),
        (None, None) => format!("{:#x}", place.avma),
    };
    match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("{name} ({}:{line})", base_name(file)),
        _ => name,
    }
}

/// Maximum number of frames in a name.
const MAX_NAME_FRAMES: usize = 4;

/// Gives objects of different identities different names.
pub(super) fn tell_apart(objects: &mut [Object], paths: &[Arc<Backtrace>]) {
    let mut alike: BTreeMap<(&str, Arc<str>), Vec<usize>> = BTreeMap::new();
    for (index, object) in objects.iter().enumerate() {
        let origin = paths.get(object.origin.0).map(|path| &**path);
        if object.symbol.is_none()
            && let Some(name) = name_of(object, origin)
        {
            let same = alike.entry((object.kind.as_str(), name)).or_default();
            same.push(index);
        }
    }
    for ((_, name), same) in alike {
        let mut keys = Vec::new();
        for index in &same {
            if !keys.contains(&objects[*index].key) {
                keys.push(objects[*index].key);
            }
        }
        if keys.len() < 2 {
            continue;
        }
        let outward = |index: usize| -> Vec<String> {
            let Some(path) = paths.get(objects[index].origin.0) else {
                return Vec::new();
            };
            let inner = caller(path);
            let frames = path.frames.iter();
            let frames = frames.skip_while(|frame| !inner.is_some_and(|i| std::ptr::eq(i, *frame)));
            frames.map(exact_place).collect()
        };
        let outward: Vec<Vec<String>> = same.iter().map(|index| outward(*index)).collect();
        let own: Vec<_> = same.iter().map(|index| objects[*index].key).collect();
        for (at, index) in same.iter().enumerate() {
            let frames = &outward[at];
            let is_others = |length: usize| {
                let mut others = outward.iter().zip(&own);
                others.any(|(others, key)| {
                    *key != own[at] && others.get(..length) == frames.get(..length)
                })
            };
            let farthest = frames.len().min(MAX_NAME_FRAMES);
            let apart = match (1..=farthest).find(|length| !is_others(*length)) {
                // The same function, at another place in it.
                Some(1) => {
                    let named = name.rsplit_once(" in ").map_or("", |(_, place)| place);
                    frames[0].strip_prefix(named).unwrap_or_default().to_owned()
                }
                Some(length) => format!(" from {}", frames[1..length].join(", ")),
                None => {
                    let number = keys.iter().position(|known| *known == own[at]).unwrap_or(0) + 1;
                    format!(" #{number}")
                }
            };
            objects[*index].apart = Some(apart.into());
        }
    }
}

/// Numbers the objects of one kind that share a name.
pub(super) fn number_namesakes(objects: &mut [Object], paths: &[Arc<Backtrace>]) {
    let mut alike: HashMap<(primitives::Kind, Arc<str>), Vec<usize>> = HashMap::new();
    for (index, object) in objects.iter().enumerate() {
        let origin = paths.get(object.origin.0).map(|path| &**path);
        if let Some(name) = name_of(object, origin) {
            alike.entry((object.kind, name)).or_default().push(index);
        }
    }
    for same in alike.into_values().filter(|same| same.len() > 1) {
        for (at, index) in same.into_iter().enumerate() {
            objects[index].number = Some(at + 1);
        }
    }
}

/// Formats a place, with its offset in the function if the line is unknown.
fn exact_place(frame: &NamedFrame) -> String {
    let exact = &frame.place;
    match (&exact.function, exact.line) {
        (Some(function), None) => format!("{function}+{:#x}", exact.offset),
        _ => place(frame),
    }
}
