//! The list of loaded libraries (`qXfer:libraries-svr4:read`).

/// One entry of the dynamic linker's list, as the server read it from `r_debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Path on the target.
    pub path: String,
    /// Address of the `struct link_map`.
    pub lm: u64,
    /// Load bias (`l_addr`): avma - svma.
    pub l_addr: u64,
    /// Address of the dynamic section (`l_ld`).
    pub l_ld: u64,
}
