//! Compares the exits of this machine's C libraries with binutils' disassembly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use unspool_image::Image;

use super::ExitFinder;

/// The address and text of every instruction.
fn disassembled(tool: &str, file: &Path) -> BTreeMap<u64, String> {
    let output = Command::new(tool)
        .args(["-d", "--no-show-raw-insn", "-w"])
        .arg(file)
        .output()
        .expect("binutils");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (address, rest) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some((address, rest.trim().to_owned()))
    };
    let mut known: BTreeMap<u64, String> = text.lines().filter_map(line).collect();
    if tool.starts_with("arm") {
        // A stripped file has no marks of T32 code, so instructions of both decodings are accepted.
        let output = Command::new(tool)
            .args(["-d", "--no-show-raw-insn", "-w", "-M", "force-thumb"])
            .arg(file)
            .output()
            .expect("binutils");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for (svma, other) in text.lines().filter_map(line) {
            known
                .entry(svma)
                .or_default()
                .push_str(&format!(" or {other}"));
        }
    }
    known
}

/// `jumps`: the share of futex calls, in percent, before which a jump fits.
fn check(tool: &str, file: &str, returns: &[&str], call: &str, futex: &[u32], jumps: usize) {
    let path = Path::new(file);
    let image = Image::open(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let known = disassembled(tool, path);
    let mut finder = ExitFinder::new(&image).expect("an architecture that is analysed");
    let mut all = 0;
    let mut whole = 0;
    let (mut seen, mut missing) = (0, 0);
    let mut barriers = 0;
    for symbol in image.symbols().functions() {
        let range = symbol.svma..symbol.svma + symbol.size;
        if symbol.size == 0 || symbol.name.contains("@plt") {
            continue;
        }
        let ways = finder.follow(symbol.svma, symbol.thumb);
        // The number of every system call that waits or wakes is known.
        let locks = [
            "pthread_mutex",
            "pthread_cond",
            "pthread_barrier",
            "pthread_rwlock",
            "sem_",
        ];
        if locks.iter().any(|lock| symbol.name.starts_with(lock)) {
            let mut calls = ways.system_calls.iter();
            assert!(calls.all(|call| call.number.is_some()), "{}", symbol.name);
            barriers +=
                usize::from(symbol.name == "pthread_barrier_wait" && !ways.system_calls.is_empty());
        }
        all += 1;
        whole += usize::from(ways.whole);
        for back in &ways.returns {
            let text = known.get(&back.svma).map_or("", String::as_str);
            let is = returns.iter().any(|mnemonic| text.contains(mnemonic));
            assert!(is, "{}: {:#x} {text:?}", symbol.name, back.svma);
        }
        // In a complete function, everything that looks like a return is reported as one.
        if ways.whole {
            for (svma, text) in known.range(range) {
                if text.split_whitespace().next() == Some("ret") {
                    seen += 1;
                    missing += usize::from(!ways.returns.iter().any(|back| back.svma == *svma));
                }
            }
        }
    }
    assert!(barriers > 0);
    // Code after calls that do not return, and nested functions.
    assert!(missing * 200 < seen.max(1), "{missing} of {seen}");
    assert!(whole * 100 > all * 80, "{whole} of {all}");
    let mut followed = std::collections::BTreeSet::new();
    let (mut futexes, mut before, mut fits) = (0, 0, 0);
    for svma in finder.likely_system_calls() {
        let (start, thumb) = finder.function_at(svma).expect("in a function");
        if !followed.insert(start) {
            continue;
        }
        for found in finder.follow(start, thumb).system_calls {
            let text = known.get(&found.svma).map_or("", String::as_str);
            assert!(text.contains(call), "{:#x} {text:?}", found.svma);
            assert!(known.contains_key(&found.next), "{:#x}", found.next);
            if let Some(earlier) = found.before {
                let previous = known.range(..found.svma).next_back().map(|(svma, _)| *svma);
                let here = Some(earlier.svma) == Some(found.svma) || Some(earlier.svma) <= previous;
                assert!(here && known.contains_key(&earlier.svma));
                assert!(found.svma - earlier.svma <= 30);
            }
            if found.number.is_some_and(|number| futex.contains(&number)) {
                futexes += 1;
                before += usize::from(found.before.is_some());
                fits += usize::from(found.before.is_some_and(|before| before.movable > 0));
            }
        }
    }
    assert!(futexes > 10, "{futexes}");
    assert!(before * 4 >= futexes * 3, "{before} of {futexes}");
    assert!(fits * 100 >= futexes * jumps, "{fits} of {futexes}");
}

#[test]
fn of_x86_64() {
    check(
        "objdump",
        "/lib/x86_64-linux-gnu/libc.so.6",
        &["ret"],
        "syscall",
        &[202],
        98,
    );
}

#[test]
fn of_armhf() {
    let returns = ["lr", "pc", "bx\tip"];
    let file = "/usr/arm-linux-gnueabihf/lib/libc.so.6";
    check(
        "arm-linux-gnueabihf-objdump",
        file,
        &returns,
        "",
        &[240, 422],
        75,
    );
}

#[test]
fn of_aarch64() {
    let file = "/usr/aarch64-linux-gnu/lib/libc.so.6";
    check(
        "aarch64-linux-gnu-objdump",
        file,
        &["ret"],
        "svc",
        &[98],
        85,
    );
}

/// Movable code consists of whole instructions, and by binutils' disassembly no jump leads into it.
#[test]
fn movable_code_is_whole_instructions() {
    let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let image = Image::open(path).expect("a C library");
    let known = disassembled("objdump", path);
    let target = |text: &String| {
        let mut words = text.split_whitespace();
        let jumps = words.next()?.starts_with(['j', 'c', 'l']);
        let target = u64::from_str_radix(words.next()?, 16).ok()?;
        jumps.then_some(target)
    };
    let targets: BTreeSet<u64> = known.values().filter_map(target).collect();
    let mut finder = ExitFinder::new(&image).expect("an architecture that is analysed");
    let symbols = image.symbols();
    let functions = symbols.functions().filter(|symbol| symbol.size > 16);
    let starts: BTreeSet<u64> = functions.map(|symbol| symbol.svma).collect();
    let (mut entries, mut ends) = (BTreeSet::new(), BTreeMap::new());
    let mut returns = BTreeSet::new();
    for svma in &starts {
        let ways = finder.follow(*svma, false);
        if ways.movable > 0 {
            entries.insert((*svma, ways.movable));
        }
        returns.extend(ways.returns.iter().map(|back| back.svma));
        for back in &ways.returns {
            if let Some(early) = back.early {
                ends.insert((early.svma, early.movable), (back.svma, early));
            }
        }
    }
    let of = |(svma, length): &(u64, u8)| *svma..*svma + u64::from(*length);
    let all: BTreeSet<(u64, u8)> = entries.iter().chain(ends.keys()).copied().collect();
    let ranges: Vec<_> = all.iter().map(of).collect();
    let entered = finder.entered(&ranges);
    let free = |place: &&(u64, u8)| !entered.contains(&place.0);
    for range in all.iter().filter(free).map(of) {
        assert!(range.end - range.start >= 5, "{range:x?}");
        assert!(known.contains_key(&range.end), "{range:x?}");
        let inside = targets.range(range.start + 1..range.end).next();
        assert_eq!(inside, None, "{range:x?}");
    }
    for ((svma, _), (back, early)) in ends.iter().filter(|(place, _)| free(place)) {
        let between = known.range(svma..back).map(|(_, text)| text.as_str());
        // In binutils' disassembly: instructions that pop the stack or set the result.
        let (mut below, mut sets) = (0, false);
        for text in between {
            let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
            let operands = operands.trim();
            below += match name {
                "pop" => 8,
                "push" => -8,
                "add" if operands.ends_with(",%rsp") => {
                    let by = operands.trim_start_matches('$').split(',').next();
                    let by = by.and_then(|by| by.strip_prefix("0x"));
                    by.and_then(|by| i64::from_str_radix(by, 16).ok())
                        .unwrap_or(0)
                }
                _ => 0,
            };
            let to = operands.rsplit(',').next().unwrap_or("");
            sets |=
                ["%rax", "%eax", "%ax", "%al"].contains(&to) && !["cmp", "test"].contains(&name);
        }
        if below > 0 && early.below > 0 {
            assert_eq!(i64::from(early.below), below, "{svma:x}");
        }
        assert!(early.result.is_some() || !sets, "{svma:x}");
    }
    let free_entries = entries.iter().filter(free).count();
    let free_ends = ends.keys().filter(free).count();
    assert!(
        free_entries * 2 > starts.len(),
        "{free_entries} of {}",
        starts.len()
    );
    assert!(
        free_ends * 4 > returns.len(),
        "{free_ends} of {}",
        returns.len()
    );
    let lock = symbols.named("pthread_mutex_lock").into_iter().next();
    let lock = lock.expect("a symbol").svma;
    assert!(entries.iter().filter(free).any(|(svma, _)| *svma == lock));
}
