//! Shortens function names to a given width.
//!
//! Names of C++ and Rust functions can be longer than a page. The parts that all instances share
//! (parameters, then template arguments from the innermost) are left out first, then middle
//! segments, then the middle. JSON has everything.

use super::text::line::{head, tail, width};

/// Maximum nesting of template arguments in a shortened name.
const MAX_SHOWN_LEVELS: usize = 6;

/// Shortens a function's name to at most `room` columns.
pub(super) fn shorten(name: &str, room: usize) -> String {
    if width(name) <= room {
        return name.to_owned();
    }
    let without = collapse(name, '(', ')');
    if width(&without) <= room {
        return without;
    }
    for levels in (1..=MAX_SHOWN_LEVELS).rev() {
        let without = collapse_below(&without, '<', '>', levels);
        if width(&without) <= room {
            return without;
        }
    }
    let without = collapse(&without, '<', '>').replace("::<…>", "");
    if width(&without) <= room {
        return without;
    }
    // `{lambda#3}` is as distinct as `{lambda()#3}`.
    let without = match without.contains("{lambda(") {
        true => without.replace("(…)", "").replace("()", ""),
        false => without,
    };
    if width(&without) <= room {
        return without;
    }
    fewer_segments(&without, room).unwrap_or_else(|| middle(&without, room))
}

/// True if [`shorten`] made `short` from `name`, for whatever width.
pub(super) fn is_shortened(short: &str, name: &str) -> bool {
    short != name && shorten(name, width(short)) == short
}

/// `std::…::Builder::spawn`: keeps the first segment and as many of the last segments as fit. Keeps
/// only the last segments if [`middle`] would cut the last one: `…::{lambda#3}`, `…worker_main`.
fn fewer_segments(name: &str, room: usize) -> Option<String> {
    let mut depth = 0usize;
    let mut cuts = Vec::new();
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && name[at..].starts_with("::") => cuts.push(at),
            _ => {}
        }
    }
    let first = &name[..*cuts.first()?];
    let short = |cut: &usize| format!("{first}::…{}", &name[*cut..]);
    let last = |cut: &usize| format!("…{}", &name[*cut..]);
    let bare = |cut: &usize| format!("…{}", &name[*cut + 2..]);
    let is_cut = |cut: &&usize| width(&name[**cut..]) > end_width(room);
    let end = cuts.last().filter(is_cut);
    let ends = end.map(|end| cuts.iter().map(last).chain([bare(end)]));
    let mut ways = cuts
        .iter()
        .skip(1)
        .map(short)
        .chain(ends.into_iter().flatten());
    ways.find(|way| width(way) <= room)
}

/// Shortens the name of an object, such as `made in pool::Queue::new from start, main+0x12`. Keeps
/// the end, which tells objects of one place apart, and the last segments of paths.
pub(super) fn shorten_object(name: &str, room: usize) -> String {
    if width(name) <= room {
        return name.to_owned();
    }
    let plain = collapse(name, '<', '>').replace("<…>", "");
    let words = plain.split(' ').map(|word| match word.rsplit_once("::") {
        Some((_, last)) => format!("…{last}"),
        None => word.to_owned(),
    });
    let short = words.collect::<Vec<String>>().join(" ");
    if width(&short) <= room {
        return short;
    }
    let place = short.split_once(" in ").map_or(&*short, |(_, place)| place);
    middle(place, room)
}

/// Replaces the content of outermost brackets with `…`. Keeps `(anonymous namespace)` and similar
/// names.
fn collapse(name: &str, open: char, close: char) -> String {
    collapse_below(name, open, close, 0)
}

/// Replaces the content of brackets that more than `levels` brackets enclose, themselves included.
fn collapse_below(name: &str, open: char, close: char, levels: usize) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut held = String::new();
    let mut previous = ' ';
    for c in name.chars() {
        // `->`, `operator<` and `operator<<` are not brackets.
        let arrow = c == '>' && previous == '-';
        // `<Type as Trait>::method` begins with the type of the method, so keep it.
        let told = out.is_empty() || out.ends_with("operator") || out.ends_with("operator<");
        if c == open && (depth > 0 || c != '<' || !told) {
            depth += 1;
            if depth == 1 {
                out.push(c);
                held.clear();
                previous = c;
                continue;
            }
        }
        if c == close && !arrow && depth > 0 {
            depth -= 1;
            if depth == 0 {
                let short = held.chars().count() <= 1 || held == "anonymous namespace";
                match levels.checked_sub(1) {
                    Some(levels) => out.push_str(&collapse_below(&held, open, close, levels)),
                    None if short => out.push_str(&held),
                    // `<lambda()>` is a name of its own.
                    None if held.starts_with("lambda(") => out.push_str("lambda"),
                    None => out.push('…'),
                }
                out.push(c);
                previous = c;
                continue;
            }
        }
        if depth > 0 {
            held.push(c);
        } else {
            out.push(c);
        }
        previous = c;
    }
    out.push_str(&held_rest(depth, &held));
    out
}

fn held_rest(depth: usize, held: &str) -> String {
    if depth > 0 {
        held.to_owned()
    } else {
        String::new()
    }
}

/// Leaves out the middle, and more of the beginning than of the end, because names begin alike.
pub(super) fn middle(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let end = end_width(room);
    let first = room.saturating_sub(1 + end);
    format!("{}…{}", head(text, first), tail(text, end))
}

/// Number of columns that [`middle`] leaves to the end of a text.
fn end_width(room: usize) -> usize {
    let room = room.saturating_sub(1);
    room - room / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_they_share_first() {
        let name =
            "std::thread::_Invoker<std::tuple<void (*)(int), int> >::operator()(int, char const*)";
        assert_eq!(shorten(name, 100), name);
        assert_eq!(shorten(name, 40), "std::thread::_Invoker<…>::operator()(…)");
        let nested = "sort<std::pair<int, long>, Less<Key> >::run(int)";
        assert_eq!(
            shorten(nested, 46),
            "sort<std::pair<int, long>, Less<Key> >::run(…)"
        );
        assert_eq!(shorten(nested, 36), "sort<std::pair<…>, Less<…> >::run(…)");
        assert_eq!(shorten(nested, 35), "sort<…>::run(…)");
        for room in 5..60 {
            let short = shorten(nested, room);
            assert_eq!(is_shortened(&short, nested), short != nested, "{short}");
        }
        assert_eq!(
            shorten("a::(anonymous namespace)::f(int, int)", 33),
            "a::(anonymous namespace)::f(…)"
        );
        assert_eq!(shorten("abcdefghijklmnop", 10), "abc…klmnop");
        assert_eq!(
            shorten("std::thread::spawn::<alloc::string::String>", 20),
            "std::thread::spawn"
        );
        assert_eq!(
            shorten("std::thread::builder::Builder::spawn", 30),
            "std::…::Builder::spawn"
        );
        assert_eq!(shorten("main::{lambda(int)#3}", 16), "main::{lambda#3}");
        assert_eq!(shorten("serve::{lambda()#13}", 15), "…::{lambda#13}");
        assert_eq!(
            shorten("pool::start()::{lambda(int, int)#2}", 20),
            "pool::…::{lambda#2}"
        );
        assert_eq!(shorten("main()::<lambda()>", 16), "main()::<lambda>");
        let worker = "pool::thread_pool_generic::worker_main";
        assert_eq!(shorten(worker, 15), "…::worker_main");
        assert_eq!(shorten(worker, 12), "…worker_main");
        assert_eq!(collapse("x::operator<<(a)", '<', '>'), "x::operator<<(a)");
        assert_eq!(collapse("f<A->b>(", '<', '>'), "f<…>(");
        assert_eq!(
            collapse("<A as B<CC>>::f::<DD>", '<', '>'),
            "<A as B<…>>::f::<…>"
        );
        assert_eq!(collapse("f<a", '<', '>'), "f<a");
    }

    #[test]
    fn names_of_objects_keep_their_end() {
        let name = "made in THD::THD from CONNECT::create_thd+0x164";
        assert_eq!(shorten_object(name, 47), name);
        assert_eq!(
            shorten_object(name, 40),
            "made in …THD from …create_thd+0x164"
        );
        assert_eq!(shorten_object(name, 28), "…THD from …create_thd+0x164");
        assert_eq!(shorten_object(name, 20), "…THD f…ate_thd+0x164");
        assert_eq!(
            shorten_object("made in pool::cache<pool::worker>::cache", 20),
            "made in …cache"
        );
        assert_eq!(shorten_object("locks_of_all_sessions", 12), "loc…sessions");
    }
}
