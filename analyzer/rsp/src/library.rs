//! The list of loaded libraries (`qXfer:libraries-svr4:read`).

/// One entry of the dynamic linker's list, as the server reads it from `r_debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Path on the target.
    pub path: String,
    /// Address of the `struct link_map`.
    pub lm: u64,
    /// Load bias (`l_addr`): the mapped address minus the address in the file.
    pub l_addr: u64,
    /// Address of the dynamic section (`l_ld`).
    pub l_ld: u64,
}

/// Decodes the XML list (GDB manual, "Library List Format for SVR4 Targets"). Skips entries without
/// a base, which are of no use.
pub(crate) fn decode(document: &str) -> Result<Vec<Library>, String> {
    let elements = crate::markup::elements(document).map_err(|e| e.problem)?;
    let number = |text: Option<&str>| crate::hex::number(text?.strip_prefix("0x")?);
    Ok(elements
        .iter()
        .filter(|element| element.name == "library")
        .filter_map(|element| {
            Some(Library {
                path: element.get("name")?.to_owned(),
                lm: number(element.get("lm")).unwrap_or(0),
                l_addr: number(element.get("l_addr"))?,
                l_ld: number(element.get("l_ld")).unwrap_or(0),
            })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_as_gdbserver_writes_it() {
        let document = r#"<library-list-svr4 version="1.0" main-lm="0x7ffff7ffe2e0">
            <library name="/lib/a&amp;b.so" lm="0x7ffff7fc6160" l_addr="0x7ffff7dcb000"
            l_ld="0x7ffff7f9cbc0" lmid="0x0"/><library name="odd"/></library-list-svr4>"#;
        assert_eq!(
            decode(document).unwrap(),
            [Library {
                path: "/lib/a&b.so".into(),
                lm: 0x7fff_f7fc_6160,
                l_addr: 0x7fff_f7dc_b000,
                l_ld: 0x7fff_f7f9_cbc0,
            }]
        );
        assert!(decode("<library-list-svr4>").is_err());
    }
}
