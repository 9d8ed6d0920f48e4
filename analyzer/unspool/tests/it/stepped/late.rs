//! Finds out which is right where clang's call frame information of ARM and the analysis of the
//! code differ. The executed program decides: a function's CFA is the stack pointer at its call,
//! which the shadow stack has recorded.

use std::collections::BTreeSet;

use unspool_image::Image;
use unspool_unwind::verify::verify;
use unspool_unwind::{CompileOptions, Provenance, Source, Table};

use super::shadow::Shadow;
use super::under_qemu::{self, Memory};
use super::*;

/// Result of one source over all stops.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    /// The source has another result, or its rule leads nowhere and the unwinder tried another
    /// source.
    wrong: usize,
}

impl Tally {
    fn count(&mut self, right: bool) {
        self.right += usize::from(right);
        self.wrong += usize::from(!right);
    }
}

/// Number of stops to compare, in functions that clang describes.
const STOPS: usize = 2_500;

#[test]
fn clang_does_not_describe_epilogues_of_arm() {
    for flags in [["-marm", "-O2"], ["-mthumb", "-O3"]] {
        let dir = tempfile::tempdir().expect("directory");
        let program = dir.path().join("stepped");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/stepped.c");
        run(Command::new("clang")
            .args(["--target=arm-linux-gnueabihf", "-march=armv7-a"])
            .args(["-mfpu=vfpv3-d16", "-g", "-w", "-static"])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(source));
        let image = Image::open(&program).expect("program");
        let truth = Table::compile(&image, &CompileOptions::default());
        let disputed = verify(&image, &image, &truth, true).disagreements;
        let is_disputed = |svma: u64| disputed.iter().any(|run| (run.0..run.1).contains(&svma));

        let server = under_qemu::start(&program, None);
        let mut memory = Memory::new(&server, &program);
        let mut client = server.connect();
        let description = client.description().clone();
        let thread = client.threads().expect("threads")[0];
        let mut shadow = Shadow::default();
        let mut previous: Option<Seen> = None;
        let mut top = 0;
        let (mut code, mut undisputed, mut at_disputed) =
            (Tally::default(), Tally::default(), Tally::default());
        let mut places = BTreeSet::new();
        while code.right + code.wrong < STOPS {
            let registers = client.registers(thread).expect("registers");
            let here = seen(&registers, &description);
            match previous {
                Some(before) => {
                    shadow.step(before, memory.length(before.pc, before.thumb), here);
                }
                None => top = here.sp,
            }
            if let Some(cfa) = shadow.caller_sp()
                && truth.lookup_from(Source::Cfi, here.pc).is_some()
            {
                let caller = shadow.callers().next();
                let mut is_right = |source| {
                    let frames = unwind(&mut client, &memory.modules, &registers, top, &[source]).0;
                    frames.get(1).is_some_and(|frame| {
                        Some(frame.pc) == caller && frame.sp == cfa && frame.provenance == source
                    })
                };
                code.count(is_right(Provenance::Code));
                if is_disputed(here.pc) {
                    places.insert(here.pc);
                    at_disputed.count(is_right(Provenance::Cfi));
                } else {
                    undisputed.count(is_right(Provenance::Cfi));
                }
            }
            previous = Some(here);
            client
                .resume(&[(Action::Step, Some(thread))])
                .expect("step");
            let stop = client.wait(Some(Duration::from_secs(60))).expect("stop");
            assert!(matches!(stop, Some(StopReply::Stopped { .. })), "{stop:?}");
        }
        println!(
            "clang {flags:?}: code {code:?}; call frame information where they differ, at {} places: {at_disputed:?}, \
             elsewhere: {undisputed:?}",
            places.len()
        );
        assert_eq!(code.wrong, 0, "{code:?}");
        assert!(
            at_disputed.wrong > 10 && at_disputed.right == 0,
            "{at_disputed:?}"
        );
        assert_eq!(undisputed.wrong, 0, "{undisputed:?}");
    }
}
