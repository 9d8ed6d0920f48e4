//! Compares descriptions of addresses inside variables with gdb's addresses of such expressions.

use std::path::Path;

use unspool_image::{Image, Locator, demangle};

use crate::tools::{compile, directory, run};

/// An expression for gdb, the variable's name, and the rest of the expression.
const PLACES: [(&str, &str, &str); 15] = [
    ("one", "one", ""),
    ("acc[0].m", "acc", "[0].m"),
    ("acc[1].m", "acc", "[1].m"),
    ("acc[3].balance", "acc", "[3].balance"),
    ("acc[2]", "acc", "[2].id"),
    ("l[0]", "l", "[0]"),
    ("l[13]", "l", "[13]"),
    ("grid[1][2]", "grid", "[1][2]"),
    ("grid[2][4]", "grid", "[2][4]"),
    ("array._M_elems[5]", "array", "[5]"),
    ("named.second", "named", ".second"),
    ("deep::shared.guard", "deep::shared", ".guard"),
    (
        "deep::shared.stripes._M_elems[3]",
        "deep::shared",
        ".stripes[3]",
    ),
    ("deep::pointer", "deep::pointer", ""),
    (
        "'main()::house'.rooms[1].changed",
        "main::house",
        ".rooms[1].changed",
    ),
];

/// The address of an expression in gdb.
fn address_of(path: &Path, expression: &str) -> u64 {
    let script = path.with_extension("gdb");
    // gdb knows the types of `main`'s variables only inside `main`.
    let commands = format!("list main\nprintf \"at %lu\\n\", (unsigned long)&({expression})\n");
    std::fs::write(&script, commands).expect("gdb's commands");
    let said = run(&format!(
        "gdb-multiarch -q -nx -batch -x {} {}",
        script.display(),
        path.display()
    ));
    let at = said.lines().find_map(|line| line.strip_prefix("at "));
    at.and_then(|at| at.parse().ok())
        .unwrap_or_else(|| panic!("{expression}: {said}"))
}

#[test]
fn parts_are_where_gdb_has_them() {
    let directory = directory("variables");
    for (name, compiler) in [
        ("gcc", "g++ -std=c++17 -g -O0 -pthread"),
        ("gcc-4", "g++ -std=c++17 -gdwarf-4 -O2 -pthread"),
        ("clang", "clang++ -std=c++17 -g -O1 -pthread"),
    ] {
        let path = compile(&directory, name, compiler, "variables.cpp");
        let image = Image::open(&path).expect("a program");
        let locator = Locator::new(&image);
        for (expression, variable, part) in PLACES {
            let at = address_of(&path, expression);
            let symbol = image.symbols().containing(at).expect(expression);
            assert!(
                demangle(symbol.name).ends_with(variable),
                "{name}: {}",
                symbol.name
            );
            let told = locator.part(symbol.svma, at - symbol.svma);
            assert_eq!(told.as_deref(), Some(part), "{name}: {expression}");
        }
        // There is nothing between members.
        let acc = image.symbols().named("acc").first().expect("acc").svma;
        assert_eq!(locator.part(acc, 4), None, "{name}: padding");
        assert_eq!(
            locator.part(acc + 1, 0),
            None,
            "{name}: no variable begins there"
        );
    }
}
