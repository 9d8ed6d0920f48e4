//! Compares compiling all call frame information of a library with evaluating it once without
//! storing it.

use std::hint::black_box;
use std::path::Path;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, Unwinder};
use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindSection,
};
use unspool_image::Image;
use unspool_unwind::{CompileOptions, Table};

use super::framehop_module::for_framehop;
use crate::{Report, each, take_turns};

const ROUNDS: usize = 10;

pub(crate) fn run(report: &mut Report) {
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
    ] {
        let image = Image::open(Path::new(path)).expect("library");
        let options = CompileOptions::default();
        let fdes = entries(&image);
        let mut unwinder = framehop::x86_64::UnwinderX86_64::new();
        unwinder.add_module(for_framehop(&image, 0));
        let mut cache = CacheX86_64::new();
        let [ours, gimli, hopped] = take_turns(
            ROUNDS,
            [
                &mut || {
                    black_box(Table::compile(&image, &options));
                },
                &mut || {
                    black_box(evaluate(&image));
                },
                &mut || {
                    // The last row of each FDE, for which framehop evaluates the whole FDE.
                    for &(_, end) in &fdes {
                        let mut registers = UnwindRegsX86_64::new(end, 0x1000, 0x1000);
                        let address = FrameAddress::from_return_address(end).expect("address");
                        let _ = black_box(unwinder.unwind_frame(
                            address,
                            &mut registers,
                            &mut cache,
                            &mut |_| Ok(0),
                        ));
                    }
                },
            ],
        );
        let table = Table::compile(&image, &options);
        let len = |name| image.section(name).map_or(0, |section| section.data.len());
        let replaced = len(".eh_frame") + len(".eh_frame_hdr");
        let [per, gimli, hopped] = [ours, gimli, hopped].map(|time| each(time, fdes.len()));
        report.say(format!(
            "compiling {path}: {ours:.1?}, {} FDEs, ns an FDE: ours {per:.0}, gimli's evaluation {gimli:.0}, \
             framehop's {hopped:.0}; {} bytes for {replaced}",
            fdes.len(),
            table.bytes()
        ));
        if path.ends_with("libc.so.6") {
            report.at_most("milliseconds for libc", ours.as_secs_f64() * 1e3, 30.0);
        }
        report.ratio("framehop / ours", hopped / per, 1.0);
        report.ratio("gimli / ours", gimli / per, 1.0);
        report.at_most(
            "table / sections it replaces",
            table.bytes() as f64 / replaced as f64,
            1.0,
        );
    }
}

/// The start and the end of every FDE.
fn entries(image: &Image) -> Vec<(u64, u64)> {
    let section = image.section(".eh_frame").expect("section");
    let frames = EhFrame::new(&section.data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.svma);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
        {
            found.push((fde.initial_address(), fde.end_address()));
        }
    }
    found
}

/// Evaluates every row of every FDE and drops it.
fn evaluate(image: &Image) -> u64 {
    let section = image.section(".eh_frame").expect("section");
    let frames: EhFrame<EndianSlice<'_, LittleEndian>> = EhFrame::new(&section.data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.svma);
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    let mut sum = 0u64;
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            && let Ok(mut rows) = fde.rows(&frames, &bases, &mut context)
        {
            while let Ok(Some(row)) = rows.next_row() {
                sum = sum.wrapping_add(row.end_address());
            }
        }
    }
    sum
}
