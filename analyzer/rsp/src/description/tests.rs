//! Tests register numbers and offsets against the rules of the GDB manual, and broken descriptions.

use super::*;

fn documents(xml: &[(&str, &str)]) -> Vec<(String, String)> {
    xml.iter()
        .map(|(a, x)| (a.to_string(), x.to_string()))
        .collect()
}

fn parse(xml: &[(&str, &str)]) -> Result<TargetDescription, DescriptionError> {
    TargetDescription::parse(&documents(xml))
}

#[test]
fn numbers_run_on_across_features_and_offsets_follow_them() {
    let description = parse(&[
        (
            "target.xml",
            r#"<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd">
               <target version="1.0"><architecture>arm</architecture><osabi>GNU/Linux</osabi>
               <xi:include href="core.xml"/><xi:include href="late.xml"/></target>"#,
        ),
        (
            "core.xml",
            r#"<feature name="org.gnu.gdb.arm.core">
               <reg name="r0" bitsize="32" type="uint32"/><reg name="sp" bitsize="32" type="data_ptr"/>
               <reg name="cpsr" bitsize="32" regnum="25" group="general"/></feature>"#,
        ),
        (
            "late.xml",
            r#"<feature name="late"><vector id="v4" type="ieee_single" count="4"/>
               <reg name="d0" bitsize="64" type="v4"/><reg name="early" bitsize="16" regnum="0x7"/></feature>"#,
        ),
    ])
    .unwrap();
    assert_eq!(description.architecture.as_deref(), Some("arm"));
    assert_eq!(description.osabi.as_deref(), Some("GNU/Linux"));
    let seen: Vec<_> = description
        .registers
        .iter()
        .map(|r| (r.name.as_str(), r.number, r.offset, r.size()))
        .collect();
    assert_eq!(
        seen,
        [
            ("r0", 0, 0, 4),
            ("sp", 1, 4, 4),
            ("early", 7, 8, 2),
            ("cpsr", 25, 10, 4),
            ("d0", 26, 14, 8)
        ]
    );
    let cpsr = description.register("cpsr").unwrap();
    assert_eq!(cpsr.group.as_deref(), Some("general"));
    assert_eq!(
        (cpsr.kind.as_str(), cpsr.feature.as_str()),
        ("int", "org.gnu.gdb.arm.core")
    );
    assert_eq!(description.register_numbered(26).unwrap().kind, "v4");
    assert_eq!(description.size(), 22);
    assert_eq!(description.documents.len(), 3);
}

#[test]
fn broken_descriptions_say_what_is_wrong() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[], "holds no registers"),
        (&[("target.xml", "<target/>")], "holds no registers"),
        (&[("target.xml", "<target>")], "ends within an element"),
        (&[("target.xml", "<target></x>")], "not XML at byte"),
        (
            &[("target.xml", r#"<t><include href="a"/></t>"#)],
            "includes a, which the server did not send",
        ),
        (
            &[("target.xml", r#"<t><include href="target.xml"/></t>"#)],
            "8 documents deep",
        ),
        (
            &[("target.xml", r#"<t><reg name="r" bitsize="0"/></t>"#)],
            "a bitsize other than",
        ),
        (
            &[("target.xml", r#"<t><reg name="r"/></t>"#)],
            "a bitsize other than",
        ),
        (
            &[(
                "target.xml",
                r#"<t><reg name="r" bitsize="99999999999"/></t>"#,
            )],
            "a bitsize other than",
        ),
        (
            &[(
                "target.xml",
                r#"<t><reg name="r" bitsize="8" regnum="70000"/></t>"#,
            )],
            "a regnum over",
        ),
        (
            &[(
                "target.xml",
                r#"<t><reg name="a" bitsize="8"/><reg name="b" bitsize="8" regnum="0"/></t>"#,
            )],
            "the number 0, which another has",
        ),
    ];
    for (xml, expected) in cases {
        let message = parse(xml).unwrap_err().to_string();
        assert!(message.contains(expected), "{xml:?}: {message}");
    }
}

#[test]
fn wide_inclusion_is_bounded() {
    let wide = r#"<include href="b"/>"#.repeat(70);
    let xml = format!("<t>{wide}</t>");
    let message = parse(&[("a", &xml), ("b", "<f/>")])
        .unwrap_err()
        .to_string();
    assert!(message.contains("64"), "{message}");
}

#[test]
fn builtin_layouts_have_the_documented_sizes() {
    // The lengths of gdb's own g packets without a description.
    for (name, size, pc) in [
        ("i386:x86-64", 536, 128),
        ("aarch64", 788, 256),
        ("arm", 168, 60),
    ] {
        let description = TargetDescription::builtin(name).unwrap();
        assert_eq!(description.size(), size, "{name}");
        let register = description
            .register("pc")
            .or(description.register("rip"))
            .unwrap();
        assert_eq!(register.offset, pc, "{name}");
        assert!(builtin::NAMES.contains(name));
    }
    assert_eq!(
        TargetDescription::builtin("arm")
            .unwrap()
            .register("cpsr")
            .unwrap()
            .number,
        25
    );
    assert_eq!(TargetDescription::builtin("z80"), None);
}

#[test]
fn noise_never_panics() {
    let words = [
        "<",
        ">",
        "/",
        "reg",
        " bitsize=\"",
        "32\"",
        "include href=\"a\"",
        "&lt;",
        "&x;",
        "<!--",
        "t",
    ];
    for seed in 1..300 {
        let text: String = crate::packet::tests::noise(seed, 120)
            .into_iter()
            .map(|b| words[usize::from(b) % words.len()])
            .collect();
        let _ = parse(&[("a", &text)]);
    }
}
