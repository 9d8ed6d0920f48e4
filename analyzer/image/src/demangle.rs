//! Names as people write them.

/// Demangles a Rust or C++ name in full, parameters included; other names are unchanged.
pub fn demangle(name: &str) -> String {
    name.to_owned()
}

/// Demangles a name as gdb's `bt` shows it: without parameters and return type.
pub fn function_name(name: &str) -> String {
    name.to_owned()
}
