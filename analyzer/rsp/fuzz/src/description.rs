//! Fuzzes target.xml and the documents it includes. NUL separates the documents.

use unspool_rsp::{Registers, TargetDescription};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let text = super::text(bytes);
    let documents: Vec<(String, String)> = text
        .split('\0')
        .take(8)
        .enumerate()
        .map(|(index, xml)| {
            let annex = if index == 0 {
                "target.xml".into()
            } else {
                format!("{index}.xml")
            };
            (annex, xml.to_owned())
        })
        .collect();
    let Ok(description) = TargetDescription::parse(&documents) else {
        return;
    };
    description.size();
    description.pointer_size();
    let mut registers = Registers::new(vec![0; 64], vec![true; 64]);
    for register in &description.registers {
        assert_eq!(
            description.register(&register.name).map(|r| &r.name),
            Some(&register.name)
        );
        registers.get(register);
        registers.value(register);
        registers.set(register, &[1, 2, 3, 4]);
    }
}
