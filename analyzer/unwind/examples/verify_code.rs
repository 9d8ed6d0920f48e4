//! Compares the code analysis with call frame information: `verify_code ELF [DEBUG-FILE]
//! [--no-symbols] [--by-region] [--list]`.
//!
//! The analysis uses only ELF; the debug file only provides the truth. `--by-region` checks the
//! results that walks use, which come from single regions. `--list` adds the addresses where they
//! differ.

use std::path::Path;
use std::time::Instant;

use unspool_image::Image;
use unspool_unwind::code::analyze;
use unspool_unwind::verify::{verify, verify_by_region};
use unspool_unwind::{CompileOptions, Source, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let symbols = !arguments.iter().any(|argument| argument == "--no-symbols");
    let mut files = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"));
    let path = files
        .next()
        .ok_or("usage: verify_code ELF [DEBUG-FILE] [--no-symbols] [--by-region] [--list]")?;
    let analysed = Image::open(Path::new(path))?;
    let mut image = Image::open(Path::new(path))?;
    if let Some(debug) = files.next() {
        image = image.with_debug_file(Image::open(Path::new(debug))?);
    }
    let start = Instant::now();
    let table = Table::compile(&image, &CompileOptions::default());
    println!(
        "compiled in {:?}: {:?} CFI rows, rules; {:?} exidx",
        start.elapsed(),
        table.size(Source::Cfi),
        table.size(Source::Exidx)
    );
    for note in table.notes().iter().take(5) {
        println!("note: {note}");
    }
    let start = Instant::now();
    let functions = analyze(&analysed, symbols).functions();
    println!("code of {functions} functions in {:?}", start.elapsed());
    let by_region = arguments.iter().any(|argument| argument == "--by-region");
    let start = Instant::now();
    let agreement = match by_region {
        true => verify_by_region(&analysed, &image, &table, symbols),
        false => verify(&analysed, &image, &table, symbols),
    };
    println!("compared in {:?}", start.elapsed());
    let (agree, unknown, wrong) = agreement.percent();
    println!(
        "{} instructions: agree {agree:.3} % unknown {unknown:.3} % wrong {wrong:.3} %",
        agreement.total()
    );
    println!("{} where CFI contradicts itself", agreement.contradictory);
    let mut worst: Vec<_> = agreement.functions.iter().collect();
    worst.sort_by_key(|(_, (unknown, wrong, _))| std::cmp::Reverse((*wrong, *unknown)));
    let print = |(start, (unknown, wrong, first)): &(&u64, &(u64, u64, u64))| {
        let name = image
            .symbols()
            .containing(**start)
            .map_or("?", |symbol| symbol.name);
        println!("{start:#x} {name}: {wrong} wrong, {unknown} unknown, first at {first:#x}");
    };
    worst.iter().take(15).for_each(print);
    println!("--");
    worst.sort_by_key(|(_, (unknown, wrong, _))| std::cmp::Reverse((*unknown, *wrong)));
    worst.iter().take(15).for_each(print);
    if arguments.iter().any(|argument| argument == "--list") {
        println!("--");
        for (start, end, verdict) in &agreement.disagreements {
            println!("{start:#x} {end:#x} {verdict:?}");
        }
    }
    Ok(())
}
