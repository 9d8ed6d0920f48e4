//! The test programs: what each is built from and what a correct report of it holds.

/// A program in `tests/programs`.
#[derive(Debug)]
pub struct Program {
    /// Its name; the source is `programs/<name>.<extension>`.
    pub name: &'static str,
    /// What it is written in.
    pub language: Language,
    /// Shared libraries it is built with: (file name, source, linked to the program).
    pub libraries: &'static [(&'static str, &'static str, bool)],
    /// Threads it creates, main not counted.
    pub threads: usize,
    /// How many of them end how, in the report's words.
    pub ends: &'static [(&'static str, usize)],
    /// Whether two threads can be about to stop at the same moment. qemu-user's own gdb server
    /// loses one of them then, under gdb as under anybody.
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

/// The program called `name`.
///
/// # Panics
/// When there is none: a mistake in a test.
pub fn program(name: &str) -> &'static Program {
    PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .expect("a program of that name")
}
