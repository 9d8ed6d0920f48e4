//! Demangles Rust and C++ symbols.

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Recursion limit: enough for real names, and safe on any stack.
const RECURSION_LIMIT: u32 = 160;
/// Maximum length of a demangled name, because demangling can square the length. Longer names stay
/// mangled.
const NAME_LIMIT: usize = 16 << 10;

/// Demangles a full name. C++ gets parameters and return type, as `c++filt` prints it; Rust (legacy
/// and v0) loses its hash. Other names are unchanged; `name@plt` keeps its suffix.
pub fn demangle(name: &str) -> String {
    demangled(name, false)
}

/// Demangles a function's name without parameters and return type: `std::thread::_M_start_thread`.
pub fn function_name(name: &str) -> String {
    demangled(name, true)
}

fn demangled(name: &str, short: bool) -> String {
    let (mangled, suffix) = match name.strip_suffix("@plt") {
        Some(mangled) => (mangled, "@plt"),
        None => (name, ""),
    };
    let plain = if mangled.len() > NAME_LIMIT {
        None
    } else {
        rust(mangled).or_else(|| cpp(mangled, short))
    };
    match plain {
        Some(plain) => plain + suffix,
        None => name.to_owned(),
    }
}

/// The name of a Rust symbol. Legacy names look like C++ variables, but have a hash, which `{:#}`
/// leaves out.
pub(crate) fn rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let plain = format!("{symbol:#}");
    let is_legacy = name.trim_start_matches('_').starts_with('Z');
    (!is_legacy || plain != symbol.to_string()).then_some(plain)
}

fn cpp(name: &str, short: bool) -> Option<String> {
    // Any other text would be taken for a type: `i` for `int`.
    if !["_Z", "__Z", "___Z", "_GLOBAL_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        return None;
    }
    let parse = ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parse).ok()?;
    let mut options = DemangleOptions::new().recursion_limit(RECURSION_LIMIT);
    if short {
        options = options.no_params().no_return_type();
    }
    let name = with_suffixed_literals(&symbol.demangle_with_options(&options).ok()?);
    Some(if short {
        without_qualifiers(&name)
    } else {
        name
    })
}

/// Removes the qualifiers of a member function and the traces of empty template argument packs, as
/// gdb does: `f<int, > const` -> `f<int>`.
fn without_qualifiers(name: &str) -> String {
    let mut name = name.replace(", >", ">");
    while let Some(kept) = [" const", " volatile", " &&", " &"]
        .iter()
        .find_map(|qualifier| name.strip_suffix(qualifier))
    {
        name.truncate(kept.len());
    }
    name
}

/// `(unsigned long)0` -> `0ul`: writes integer template arguments like gdb and c++filt.
fn with_suffixed_literals(name: &str) -> String {
    const TYPES: [(&str, &str); 5] = [
        ("(unsigned long long)", "ull"),
        ("(unsigned long)", "ul"),
        ("(unsigned int)", "u"),
        ("(long long)", "ll"),
        ("(long)", "l"),
    ];
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('(') {
        let (before, here) = rest.split_at(at);
        out.push_str(before);
        let literal = TYPES.iter().find_map(|(cast, suffix)| {
            let number = here.strip_prefix(cast)?;
            let digits = number.strip_prefix('-').unwrap_or(number);
            let end = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            let len = number.len() - digits.len() + end;
            (end > 0).then(|| (&number[..len], suffix, &number[len..]))
        });
        match literal {
            Some((number, suffix, after)) => {
                out.push_str(number);
                out.push_str(suffix);
                rest = after;
            }
            None => {
                out.push('(');
                rest = &here[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_short() {
        let thread =
            "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE";
        assert_eq!(
            demangle(thread),
            "std::thread::_M_start_thread(std::unique_ptr<std::thread::_State, \
             std::default_delete<std::thread::_State> >, void (*)())"
        );
        assert_eq!(function_name(thread), "std::thread::_M_start_thread");
        assert_eq!(
            function_name("_ZN5outer3BoxIiLi4EEclEi"),
            "outer::Box<int, 4>::operator()"
        );
        assert_eq!(demangle("_Z3fooi@plt"), "foo(int)@plt");
        assert_eq!(demangle("_Z1fILm7ELln1EEvv"), "void f<7ul, -1l>()");
    }

    #[test]
    fn short_names_lose_qualifiers_and_empty_packs() {
        assert_eq!(function_name("_ZNK1A1fEv"), "A::f");
        assert_eq!(function_name("_Z1fIiJEEvT_"), "f<int>");
        assert_eq!(function_name("_ZNK1AcvbEv"), "A::operator bool");
    }

    #[test]
    fn rust_names_lose_their_hash() {
        assert_eq!(demangle("_ZN1r4leaf17hb77086c86ae4a0d8E"), "r::leaf");
        let variable = "(anonymous namespace)::pool";
        assert_eq!(demangle("_ZN12_GLOBAL__N_14poolE"), variable);
        assert_eq!(demangle("_RNvCs6GmmlP4bgsG_1r4leaf"), "r::leaf");
    }

    #[test]
    fn other_names_are_unchanged() {
        for name in [
            "main",
            "i",
            "",
            "_Z",
            "_R",
            "@plt",
            "memcpy@plt",
            "_ZN",
            "$_0",
        ] {
            assert_eq!(demangle(name), name);
            assert_eq!(function_name(name), name);
        }
        let endless = format!("_Z1f{}", "P".repeat(100_000));
        assert_eq!(demangle(&endless), endless);
        let deep = format!("_Z1f{}i", "P".repeat(8_000));
        demangle(&deep);
    }
}
