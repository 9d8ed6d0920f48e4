//! Demangles Rust and C++ symbols.

mod cpp;

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
    cpp::demangle(name, short)
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
    fn parameters_of_templates() {
        for (name, plain) in [
            // A constructor template has no return type.
            ("_ZN1AC1IidEET_T0_", "A::A<int, double>(int, double)"),
            (
                "_Z1fIJiicEEvDpRKT_",
                "void f<int, int, char>(int const&, int const&, char const&)",
            ),
            ("_ZN1A1fEPNS_1BERKS0_", "A::f(A::B*, A::B const&)"),
            ("_Z1fR1APNS_1BE", "f(A&, A::B*)"),
            ("_Z1f1AIF1BiEE", "f(A<B (int)>)"),
            ("_Z1fI1AIJEEEvv", "void f<A<> >()"),
            ("_Z1fI1AIiJEdEEvv", "void f<A<int, , double> >()"),
            ("_Z1fI1AI1BIiEJEEEvv", "void f<A<B<int>> >()"),
            ("_Z1fIRiEvOT_", "void f<int&>(int&)"),
            ("_Z1fIA3_iEvRKT_", "void f<int [3]>(int const (&) [3])"),
            ("_Z1fIiEPFT_cEv", "int (*f<int>())(char)"),
            ("_ZN1AcvT_IiEEv", "A::operator int<int>()"),
            (
                "_ZZ1fvENKUlT_E_clIiEEDaS_",
                "auto f()::{lambda(auto:1)#1}::operator()<int>(int) const",
            ),
            // T_ is a parameter of g in the first type, of f in the second.
            (
                "_Z1fIiZ1gIdEvT_EUlvE_EvS1_T0_",
                "void f<int, g<double>(double)::{lambda()#1}>\
                 (int, g<double>(double)::{lambda()#1})",
            ),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn names_of_other_objects() {
        for (name, plain) in [
            ("_ZTV1A", "vtable for A"),
            (
                "_ZTCSt9strstream0_Sd",
                "construction vtable for std::iostream-in-std::strstream",
            ),
            ("_ZThn8_N1A1fEv", "non-virtual thunk to A::f()"),
            ("_ZGVZ1fvE1x", "guard variable for f()::x"),
            ("_ZNSi4readEPcl", "std::istream::read(char*, long)"),
            (
                "_ZNSoC1Ev",
                "std::basic_ostream<char, std::char_traits<char> >::basic_ostream()",
            ),
            ("_ZN1ACI21BEi", "A::B(int)"),
            ("_ZNSaIcEC5Ev", "std::allocator<char>::allocator()"),
            ("_ZGA1fv", "hidden alias for f()"),
            ("_ZTF1A", "typeinfo fn for A"),
            ("_ZTJ1A", "java Class for A"),
            ("_ZTIDn", "typeinfo for decltype(nullptr)"),
            ("_Z1fv.part.0.cold", "f() [clone .part.0] [clone .cold]"),
            (
                "_Z1gIiENSt9enable_ifIXsr3std9is_signedIT_EE5valueEiE4typeES1_",
                "std::enable_if<std::is_signed<int>::value, int>::type g<int>(int)",
            ),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn expressions_of_templates() {
        for (name, plain) in [
            // After the type, gcc repeats it by a substitution.
            (
                "_ZNSt6chrono4castIlEENSt9enable_ifIXsrNS_5is_itIT_EE5valueES4_E4typeEi",
                "std::enable_if<std::chrono::is_it<long>::value, std::chrono::is_it<long> >::type \
                 std::chrono::cast<long>(int)",
            ),
            (
                "_Z1fIiEDTsrNT_1aE1xES0_",
                "decltype (int::a::x) f<int>(int)",
            ),
            (
                "_Z1fIiEDTnwcvPvLi0E_T_pifp_EES1_",
                "decltype (new ((void*)(0)) int({parm#1})) f<int>(int)",
            ),
            ("_Z1fIiEDTgsnw_T_EES0_", "decltype (::new int) f<int>(int)"),
            ("_Z1fIiEDTna_T_EES0_", "decltype (new int) f<int>(int)"),
            ("_Z1fIiEDTnw_T_piEES0_", "decltype (new int()) f<int>(int)"),
            (
                "_Z1fIXtl1Udi1fLf3fc00000EEEEvv",
                "void f<U{.f=((float)[3fc00000])}>()",
            ),
            ("_Z1fIXtl1Pdi1xdi1yLi1EEEEvv", "void f<P{.x.y=(1)}>()"),
            ("_Z1fIXtl1PdxLi1ELi2EEEEvv", "void f<P{[1]=(2)}>()"),
            (
                "_Z1fIXtl1PdXLi0ELi1ELi2EEEEvv",
                "void f<P{[0 ... 1]=(2)}>()",
            ),
            (
                "_Z1fIiEDTu5abcdeT_EES0_",
                "decltype (abcde(int)) f<int>(int)",
            ),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn lambdas_show_their_template_parameters() {
        for (name, plain) in [
            (
                "_ZZ4mainENKUlDpT_E_clIJidEEEDaS0_",
                "auto main::{lambda((auto:1)...)#1}::operator()<int, double>(int, double) const",
            ),
            (
                "_ZZ4mainENKUlTyT_T0_E_clIidEEDaS_S0_",
                "auto main::{lambda<typename $T0>($T0, auto:2)#1}::operator()<int, double>\
                 (int, double) const",
            ),
            (
                "_ZZ4mainENKUlTniTpTnjvE0_clEv",
                "main::{lambda<int $N0, unsigned int... $N1>()#2}::operator()() const",
            ),
            (
                "_ZZ1fvENKUlTtTyETpTyT0_E_clEv",
                "f()::{lambda<template<typename> class $TT0, typename... $T1>($T1)#1}::\
                 operator()() const",
            ),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn functions_show_their_specifications() {
        for (name, plain) in [
            (
                "_Z3nxbILb0EEiPDOT_EFvvE",
                "int nxb<false>(void (*)() noexcept(false))",
            ),
            ("_Z1fPDxFvvE", "f(void (*)() transaction_safe)"),
            (
                "_Z1fPDOLb1EEDwidEFvvE",
                "f(void (*)() throw(int, double) noexcept(true))",
            ),
            ("_Z1fM1AKDoFvvRE", "f(void (A::*)() noexcept const &)"),
            ("_Z1fIXadL_ZN1A1gEiEEEvv", "void f<&A::g>()"),
            ("_Z1fIXadL_ZNK1A1gEiEEEvv", "void f<&(A::g(int) const)>()"),
            ("_Z1fIXadL_ZNR1A1gEiEEEvv", "void f<&(A::g(int) &)>()"),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn names_in_modules() {
        for (name, plain) in [
            ("_ZW3fooW3bar4worki", "work@foo.bar(int)"),
            ("_ZW3fooWP3bar1fv", "f@foo:bar()"),
            ("_ZGIW3fooW3bar", "initializer for module foo.bar"),
            ("_ZNW3foo1AC1Ev", "A@foo::A()"),
            // The module is the first substitution.
            ("_ZW3foo1fS_1A", "f@foo(A@foo)"),
            (
                "_ZW3foo1fNS_1AIiE1BES1_S2_",
                "f@foo(A@foo<int>::B, A@foo<int>, A@foo<int>::B)",
            ),
            ("_ZNW3foo1Q1RC1ERKNS_1S1TE", "Q@foo::R::R(S@foo::T const&)"),
        ] {
            assert_eq!(demangle(name), plain, "{name}");
        }
    }

    #[test]
    fn long_names_stay_within_limits() {
        // Each type repeats the one before twice.
        let mut doubling = "_Z1f1AIiiE".to_owned();
        for index in 0..60 {
            let digit = |value: u32| char::from_digit(value, 36).unwrap().to_ascii_uppercase();
            let last = match index {
                0..36 => digit(index).to_string(),
                _ => format!("1{}", digit(index - 36)),
            };
            doubling += &format!("S_IS{last}_S{last}_E");
        }
        assert_eq!(demangle(&doubling), doubling);
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
