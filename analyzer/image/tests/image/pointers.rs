//! Compares the targets of pointers in data with nm's addresses.

use unspool_image::Image;

use crate::tools::{compile, directory, hex, run};

/// libstdc++'s thread objects have a table of three functions, the last of which is `_M_run`. Two
/// other words precede them.
#[test]
fn tables_of_virtual_functions_lead_to_these() {
    let directory = directory("pointers");
    for (name, command) in [
        ("pie", "g++ -O1 -fPIE -pie"),
        ("fixed", "g++ -O1 -fno-PIE -no-pie"),
        ("library", "g++ -O1 -fPIC -shared"),
        ("packed", "g++ -O1 -fPIE -pie -Wl,-z,pack-relative-relocs"),
        ("clang", "clang++ -O1 -fPIE -pie"),
        ("arm", "arm-linux-gnueabihf-g++ -O1 -marm -fPIE -pie"),
        ("thumb", "arm-linux-gnueabihf-g++ -O1 -mthumb -fPIC -shared"),
    ] {
        let path = compile(&directory, name, command, "threads.cpp");
        let listed = run(&format!("nm {}", path.display()));
        let symbols = listed.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, _, name] = words[..] else {
                return None;
            };
            Some((name, hex(address)))
        });
        let symbols: Vec<(&str, u64)> = symbols.collect();
        let image = Image::open(&path).expect("an image");
        let word = image.arch().address_size() as u64;
        let mut seen = 0;
        for (table, svma) in &symbols {
            let Some(class) = table.strip_prefix("_ZTVNSt6thread11_State_impl") else {
                continue;
            };
            let class = class.strip_suffix('E').expect("a nested name");
            let called = format!("_ZNSt6thread11_State_impl{class}6_M_runEv");
            let called = symbols.iter().find(|(name, _)| *name == called);
            let called = called.map(|(_, svma)| *svma);
            let found = image.pointer_at(svma + 4 * word);
            assert!(
                found.is_some() && found == called,
                "{name}: {table} {found:x?}"
            );
            // The offset to the object's start is not a pointer.
            assert_eq!(image.pointer_at(*svma), None, "{name}: {table}");
            seen += 1;
        }
        assert_eq!(seen, 2, "{name}");
    }
}
