//! Tests with a real file: this test program, mapped at an unusual address.

use unspool_capture::{
    Capture, Chunk, ModuleLoaded, ModuleUnloaded, Record, RegisterLayout, Snapshot, Target,
    ThreadSeen,
};
use unspool_image::{Finder, Image};

use super::{Symbolizer, epoch};
use crate::model::backtrace::Frames;
use crate::model::{Model, Note};
use crate::platform::Architecture;
use crate::store::Store;

const BIAS: u64 = 0x1234_5600_0000;

/// A function to be found.
#[inline(never)]
fn unspool_symbolizer_landmark() -> u64 {
    std::hint::black_box(7)
}

fn capture(path: &str, build_id: Vec<u8>) -> Capture {
    let arch = own_image().arch();
    let platform = Architecture::of(arch).expect("a known architecture");
    let (pc, sp) = (platform.pc, platform.sp);
    let layout = |name: &str, offset| RegisterLayout {
        name: name.into(),
        bits: 64,
        offset,
        ..Default::default()
    };
    Capture::from_records(vec![
        Target {
            arch: arch.gdb_name().into(),
            registers: vec![layout(pc, 0), layout(sp, 8)],
            local: true,
            ..Default::default()
        }
        .into(),
        ModuleLoaded {
            id: 1,
            path: path.into(),
            bias: BIAS,
            start: BIAS,
            end: BIAS + (1 << 32),
            build_id,
            ..Default::default()
        }
        .into(),
        ThreadSeen::default().into(),
    ])
}

fn own_path() -> String {
    std::env::current_exe()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

fn own_image() -> Image {
    Image::open(&std::env::current_exe().unwrap()).unwrap()
}

fn landmark() -> u64 {
    assert_eq!(unspool_symbolizer_landmark(), 7);
    let image = own_image();
    let mut functions = image.symbols().functions();
    functions
        .find(|f| f.name.contains("unspool_symbolizer_landmark"))
        .unwrap()
        .svma
}

fn open(capture: &Capture) -> Symbolizer {
    let mut symbolizer = Symbolizer::new(Finder::default());
    symbolizer.open(capture);
    symbolizer
}

fn snapshot(pc: u64, stack: Vec<u8>) -> Snapshot {
    Snapshot {
        registers: [pc.to_le_bytes(), 0x7000_0000u64.to_le_bytes()].concat(),
        chunks: vec![Chunk {
            address: 0x7000_0000,
            bytes: stack,
        }],
        ..Default::default()
    }
}

#[test]
fn an_address_gets_its_function_module_and_line() {
    let svma = landmark();
    let mut symbolizer = open(&capture(&own_path(), Vec::new()));
    let place = symbolizer.place(2, svma + BIAS);
    assert!(
        place
            .function
            .as_deref()
            .unwrap()
            .ends_with("unspool_symbolizer_landmark")
    );
    assert_eq!(
        (place.offset, place.svma, place.avma),
        (0, Some(svma), svma + BIAS)
    );
    assert!(
        place
            .file
            .as_deref()
            .unwrap()
            .ends_with("symbolizer/tests.rs"),
        "{place:?}"
    );
    assert_eq!(place.module.as_deref(), Some(own_path().as_str()));

    let stack = symbolizer.backtrace(2, &snapshot(svma + BIAS, Vec::new()));
    assert_eq!(stack.physical().count(), 1, "{stack:?}");
    assert_eq!(stack.frames[0].place.svma, Some(svma));
    assert!(stack.truncated.is_some(), "there is no stack to go on with");
}

#[test]
fn only_answers_without_a_line_need_downloaded_files() {
    let resolved = |mut capture: Capture, svma: u64| {
        let mut symbolizer = open(&capture);
        symbolizer.place(2, svma + BIAS);
        capture.resolution = symbolizer.resolution();
        capture
    };
    let lacks_files = |capture: &Capture| Symbolizer::lacks_files(capture, &Store::default());
    let mut complete = resolved(capture(&own_path(), Vec::new()), landmark());
    assert!(!lacks_files(&complete));
    // The file is gone, but its answers are not.
    if let Record::ModuleLoaded(module) = &mut complete.records[1] {
        module.build_id = vec![0xab; 20];
    }
    assert!(!lacks_files(&complete));
    assert!(!lacks_files(&resolved(
        capture("/no/such/lib.so", Vec::new()),
        0x1234
    )));
    assert!(lacks_files(&resolved(
        capture("/no/such/lib.so", vec![0xab; 20]),
        0x1234
    )));
    // This machine has the debug information, which no server improves.
    assert!(!lacks_files(&resolved(
        capture(&own_path(), Vec::new()),
        0x10
    )));
}

#[test]
fn a_program_started_by_a_link_has_the_links_name() {
    for (by_link, shown) in [(true, "busy"), (false, "toolbox")] {
        let mut capture = capture("/bin/toolbox", Vec::new());
        let Record::ModuleLoaded(module) = &mut capture.records[1] else {
            panic!("no module");
        };
        module.started_as = "/usr/bin/busy".into();
        module.started_by_link = by_link;
        let mut symbolizer = open(&capture);
        let stack = symbolizer.backtrace(2, &snapshot(BIAS + 0x1234, vec![0; 64]));
        let place = &stack.frames[0].place;
        assert_eq!(
            (place.module_name(), place.shown_module()),
            (Some("toolbox"), Some(shown)),
            "identity is the file's"
        );
        let why = stack.truncated.as_deref().unwrap_or_default();
        assert!(why.contains(shown), "{why}");
    }
}

#[test]
fn a_missing_file_leaves_module_and_offset() {
    let capture = capture("/no/such/lib.so", Vec::new());
    let mut symbolizer = open(&capture);
    let stack = symbolizer.backtrace(2, &snapshot(BIAS + 0x1234, vec![0; 64]));
    let place = &stack.frames[0].place;
    assert_eq!(
        (place.module_name(), place.svma, place.offset),
        (Some("lib.so"), Some(0x1234), 0x1234)
    );
    assert_eq!(place.function, None);
    assert_eq!(
        stack.truncated.as_deref(),
        Some("the file of lib.so is missing")
    );
    let notes: Vec<Note> = symbolizer.take_notes();
    assert!(
        notes[0]
            .text
            .starts_with("The file of /no/such/lib.so could not be used"),
        "{notes:?}"
    );
}

#[test]
fn a_file_of_another_build_is_not_used() {
    let mut symbolizer = open(&capture(&own_path(), vec![0xab; 20]));
    let place = symbolizer.place(2, landmark() + BIAS);
    assert_eq!(place.function, None);
    let notes = symbolizer.take_notes();
    assert!(notes[0].text.contains("could not be used"), "{notes:?}");
    assert!(notes[0].text.contains("abababab"), "{notes:?}");
}

#[test]
fn files_no_stack_is_in_are_not_missed() {
    let capture = capture("/no/such/lib.so", Vec::new());
    let model = Model::build(&capture, &mut Symbolizer::new(Finder::default()));
    assert!(!model.notes.iter().any(|note| note.text.contains("lib.so")));
    assert_eq!(model.modules[0].path, "/no/such/lib.so");
}

#[test]
fn an_unknown_architecture_is_an_error_note() {
    let mut capture = capture(&own_path(), Vec::new());
    capture.target.arch = "vax".into();
    capture.records.push(
        unspool_capture::Event {
            snapshot: Some(snapshot(1, vec![])),
            ..Default::default()
        }
        .into(),
    );
    let mut symbolizer = open(&capture);
    let stack = symbolizer.backtrace(3, &snapshot(1, vec![]));
    assert!(stack.frames.is_empty() && stack.truncated.is_some());
    assert!(symbolizer.take_notes()[0].text.contains("\"vax\""));
}

#[test]
fn addresses_belong_to_what_was_mapped_then() {
    let load = |id: u32, start: u64| -> Record {
        ModuleLoaded {
            id,
            start,
            end: start + 0x1000,
            ..Default::default()
        }
        .into()
    };
    let event = || -> Record { unspool_capture::Event::default().into() };
    let unload = |id: u32| -> Record {
        ModuleUnloaded {
            id,
            ..Default::default()
        }
        .into()
    };
    let records = [
        event(),
        load(1, 0x1000),
        load(2, 0x2000),
        event(),
        unload(1),
        load(3, 0x1800),
        event(),
        load(4, 0x1800),
        event(),
    ];
    let epochs = epoch::divide(&records, false);
    let owner = |record: usize, avma: u64| {
        let epoch = epochs
            .iter()
            .rev()
            .find(|epoch| epoch.first <= record)
            .unwrap();
        epoch.owner(avma)
    };
    assert_eq!(owner(0, 0x1fff), Some(0), "noticed after its code ran");
    assert_eq!(
        (owner(3, 0x1000), owner(3, 0x2000), owner(3, 0x3000)),
        (Some(0), Some(1), None)
    );
    assert_eq!((owner(6, 0x1000), owner(6, 0x1900)), (None, Some(2)));
    assert_eq!((owner(8, 0x1900), owner(8, 0x27ff)), (Some(3), Some(3)));
}
