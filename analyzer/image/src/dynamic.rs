//! The dynamic section: what the dynamic linker is told about the file.
//!
//! Apart because it is found through the program headers alone, in every stripped file.

/// Values of the dynamic section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dynamic {
    /// `DT_NEEDED`: names of the libraries this one needs, in order.
    pub needed: Vec<String>,
    /// `DT_SONAME`: the name others need it by.
    pub soname: Option<String>,
    /// Address (svma) of the value of the `DT_DEBUG` entry, where the dynamic linker stores the
    /// address of `r_debug`.
    pub debug_value_svma: Option<u64>,
}
