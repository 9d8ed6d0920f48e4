//! Compare the analysis of code with call frame information:
//! `verify_code ELF [DEBUG-FILE] [--no-symbols]`. The analysis sees ELF
//! alone; the debug file only serves as truth.

use std::path::Path;
use std::time::Instant;

use unspool_image::Image;
use unspool_unwind::verify::verify;
use unspool_unwind::{CompileOptions, Source, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let symbols = !arguments.iter().any(|argument| argument == "--no-symbols");
    let mut files = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"));
    let path = files
        .next()
        .ok_or("usage: verify_code ELF [DEBUG-FILE] [--no-symbols]")?;
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
    let analysis = table.analysis().map_or(0, |analysis| analysis.functions());
    println!(
        "code of {analysis} functions in {:?}: {:?} rows, rules",
        start.elapsed(),
        table.size(Source::Code)
    );
    let agreement = verify(&analysed, &image, &table, symbols);
    let (agree, unknown, wrong) = agreement.percent();
    println!(
        "{} instructions: agree {agree:.3} % unknown {unknown:.3} % wrong {wrong:.3} %",
        agreement.total()
    );
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
    Ok(())
}
