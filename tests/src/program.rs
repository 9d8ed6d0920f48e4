//! The test programs: their sources and the expected content of a report.

/// A program in `tests/programs`.
#[derive(Debug)]
pub struct Program {
    /// The program's name. Its source is `programs/<name>.<extension>`.
    pub name: &'static str,
    /// The source language.
    pub language: Language,
    /// Its shared libraries: (file name, source, linked to the program).
    pub libraries: &'static [(&'static str, &'static str, bool)],
    /// Number of threads it creates, without main.
    pub threads: usize,
    /// Number of threads for each kind of end, in the report's terms.
    pub ends: &'static [(&'static str, usize)],
    /// Whether two threads may be about to stop at the same time. qemu-user's gdb server then loses
    /// one of them with any client.
    pub concurrent: bool,
}

/// A source language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C11 and POSIX threads.
    C,
    /// C++17.
    Cxx,
    /// Rust, built by rustc alone.
    Rust,
}

impl Language {
    /// The extension of source files.
    pub fn extension(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Cxx => "cpp",
            Language::Rust => "rs",
        }
    }
}

const C: Program = Program {
    name: "",
    language: Language::C,
    libraries: &[],
    threads: 0,
    ends: &[],
    concurrent: false,
};

/// Every program.
pub static PROGRAMS: &[Program] = &[
    Program {
        name: "pool",
        threads: 8,
        ends: &[("joined", 8)],
        ..C
    },
    Program {
        name: "nest",
        threads: 30,
        ends: &[("joined", 30)],
        ..C
    },
    Program {
        name: "shortlived",
        threads: 300,
        ends: &[("joined", 300)],
        ..C
    },
    Program {
        name: "detached",
        threads: 12,
        ends: &[], // the last ones may still be on their way out when main ends
        ..C
    },
    Program {
        name: "churn",
        threads: 124,
        ends: &[("joined", 124)],
        concurrent: true,
        ..C
    },
    Program {
        name: "c11",
        threads: 4,
        ends: &[("joined", 4)],
        ..C
    },
    Program {
        name: "bigframe",
        threads: 2,
        ends: &[("joined", 2)],
        ..C
    },
    Program {
        name: "recursion",
        threads: 1,
        ends: &[("joined", 1)],
        ..C
    },
    Program {
        name: "library",
        libraries: &[
            ("libconstructor.so", "library_constructor.c", true),
            ("libplugin.so", "library_plugin.c", false),
        ],
        threads: 4,
        ends: &[("joined", 4)],
        ..C
    },
    Program {
        name: "cxx",
        language: Language::Cxx,
        threads: 4,
        ends: &[("joined", 4)],
        ..C
    },
    Program {
        name: "rust",
        language: Language::Rust,
        threads: 8,
        ends: &[],
        ..C
    },
];

/// The program named `name`.
///
/// # Panics
/// There is none, which is a mistake in a test.
pub fn program(name: &str) -> &'static Program {
    PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .expect("a program of that name")
}
