//! Builds ELF files from fuzzed sections, so that a fuzzer reaches their content without having to
//! find valid headers.

use unspool_image::{Arch, Image};

/// Address of the file's first byte.
pub const BASE: u64 = 0x1_0000;
const NOTE: &[u8] = b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0unspool!";

/// Selects an architecture.
pub fn arch(choice: u8) -> Arch {
    [Arch::Arm, Arch::X86_64, Arch::Aarch64][usize::from(choice) % 3]
}

/// An image with these sections (name, content), mapped at [`BASE`]. Only `.text` is executable.
pub fn image(arch: Arch, sections: &[(&str, &[u8])]) -> Image {
    let wide = arch != Arch::Arm;
    let (header, program, entry) = if wide { (64, 56, 64) } else { (52, 32, 40) };
    let mut file = vec![0; header + program];
    let mut names = vec![0u8];
    // Name, type, flags, offset, size.
    let mut table: Vec<(usize, u32, u64, usize, usize)> = vec![(0, 0, 0, 0, 0)];
    let note = (".note.gnu.build-id", NOTE);
    for (name, bytes) in sections.iter().chain([&note]) {
        file.resize(file.len().next_multiple_of(16), 0);
        let kind = match *name {
            ".ARM.exidx" => 0x7000_0001,
            ".note.gnu.build-id" => 7,
            _ => 1,
        };
        let flags = match *name {
            ".text" => 6,
            ".debug_frame" => 0,
            _ => 2,
        };
        table.push((names.len(), kind, flags, file.len(), bytes.len()));
        names.extend(name.bytes().chain([0]));
        file.extend_from_slice(bytes);
    }
    let own = names.len();
    names.extend(b".shstrtab\0");
    table.push((own, 3, 0, file.len(), names.len()));
    file.extend_from_slice(&names);
    file.resize(file.len().next_multiple_of(16), 0);
    let at = file.len();
    let word = |out: &mut Vec<u8>, value: u64| match wide {
        true => out.extend(value.to_le_bytes()),
        false => out.extend((value as u32).to_le_bytes()),
    };
    for (name, kind, flags, offset, size) in &table {
        let start = file.len();
        file.extend((*name as u32).to_le_bytes());
        file.extend(kind.to_le_bytes());
        word(&mut file, *flags);
        word(
            &mut file,
            if flags & 2 == 2 {
                BASE + *offset as u64
            } else {
                0
            },
        );
        word(&mut file, *offset as u64);
        word(&mut file, *size as u64);
        file.extend([0; 8]);
        word(&mut file, 4);
        word(&mut file, 0);
        assert_eq!(file.len() - start, entry);
    }
    let mut head = b"\x7fELF".to_vec();
    head.extend([if wide { 2 } else { 1 }, 1, 1, 0]);
    head.extend([0; 8]);
    let machine: u16 = match arch {
        Arch::X86_64 => 62,
        Arch::Aarch64 => 183,
        _ => 40,
    };
    head.extend(3u16.to_le_bytes());
    head.extend(machine.to_le_bytes());
    head.extend(1u32.to_le_bytes());
    word(&mut head, BASE + header as u64 + program as u64);
    word(&mut head, header as u64);
    word(&mut head, at as u64);
    head.extend(if wide { 0u32 } else { 0x0500_0400 }.to_le_bytes());
    for value in [header, program, 1, entry, table.len(), table.len() - 1] {
        head.extend((value as u16).to_le_bytes());
    }
    assert_eq!(head.len(), header);
    let size = file.len() as u64;
    let flags = 5u32.to_le_bytes();
    head.extend(1u32.to_le_bytes());
    if wide {
        head.extend(flags);
    }
    for value in [0, BASE, BASE, size, size] {
        word(&mut head, value);
    }
    if !wide {
        head.extend(flags);
    }
    word(&mut head, 0x1000);
    assert_eq!(head.len(), header + program);
    file[..head.len()].copy_from_slice(&head);
    Image::parse("fuzz", file).expect("a well-formed file")
}

/// Splits the input by its length fields: two little-endian bytes before each part but the last.
pub fn parts<const N: usize>(mut bytes: &[u8]) -> [&[u8]; N] {
    let mut parts = [&[][..]; N];
    for (index, part) in parts.iter_mut().enumerate() {
        if index + 1 == N {
            *part = bytes;
            break;
        }
        let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
            break;
        };
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        (*part, bytes) = rest.split_at(len);
    }
    parts
}
