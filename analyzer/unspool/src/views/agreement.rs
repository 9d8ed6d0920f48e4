//! Compares the analysis of an image's code with its call frame information.

use std::cmp::Reverse;
use std::io::{self, Write};

use serde::Serialize;
use unspool_image::{Image, function_name};
use unspool_unwind::verify::Agreement;

use super::json;

/// Maximum number of functions named.
const MAX_FUNCTIONS: usize = 20;

/// Writes the comparison as text.
pub fn write_text(agreement: &Agreement, image: &Image, out: &mut dyn Write) -> io::Result<()> {
    let comparison = Comparison::of(agreement, image);
    writeln!(
        out,
        "{}: {} instructions with call frame information",
        image.name(),
        comparison.instructions
    )?;
    let (agree, unknown, wrong) = agreement.percent();
    writeln!(out, "agree   {:>9}  {agree:7.3} %", comparison.agree)?;
    writeln!(out, "unknown {:>9}  {unknown:7.3} %", comparison.unknown)?;
    writeln!(out, "wrong   {:>9}  {wrong:7.3} %", comparison.wrong)?;
    if comparison.late > 0 {
        writeln!(
            out,
            "At {} of the instructions that do not agree, call frame information contradicts itself.\n\
             For example, an instruction changes the CFA register, but the CFA rule stays the same.",
            comparison.late
        )?;
        let rest = comparison.instructions - comparison.late;
        let percent = |count: u64| 100.0 * count as f64 / rest.max(1) as f64;
        let wrong = comparison.wrong - comparison.late_wrong;
        writeln!(
            out,
            "Without them: agree {:.3} %, unknown {:.3} %, wrong {:.3} %",
            percent(comparison.agree),
            percent(rest - comparison.agree - wrong),
            percent(wrong)
        )?;
    }
    if !comparison.functions.is_empty() {
        writeln!(
            out,
            "\nfunctions with wrong or unknown instructions, most wrong ones first"
        )?;
        writeln!(out, "   wrong  unknown  first at    function")?;
    }
    for function in &comparison.functions {
        writeln!(
            out,
            "{:>8} {:>8}  {:<10}  {}",
            function.wrong,
            function.unknown,
            format!("{:#x}", function.first),
            function.name.as_deref().unwrap_or("?")
        )?;
    }
    Ok(())
}

/// Writes the comparison as one JSON document.
pub fn write_json(agreement: &Agreement, image: &Image, out: &mut dyn Write) -> io::Result<()> {
    json::write(out, &Comparison::of(agreement, image))
}

#[derive(Serialize)]
struct Comparison {
    schema_version: u32,
    instructions: u64,
    agree: u64,
    unknown: u64,
    wrong: u64,
    late: u64,
    late_wrong: u64,
    functions: Vec<Function>,
}

#[derive(Serialize)]
struct Function {
    name: Option<String>,
    start: u64,
    wrong: u64,
    unknown: u64,
    first: u64,
}

impl Comparison {
    fn of(agreement: &Agreement, image: &Image) -> Comparison {
        let mut functions: Vec<Function> = agreement
            .functions
            .iter()
            .map(|(&start, &(unknown, wrong, first))| Function {
                name: image
                    .symbols()
                    .containing(start)
                    .map(|symbol| function_name(symbol.name)),
                start,
                wrong,
                unknown,
                first,
            })
            .collect();
        functions
            .sort_by_key(|function| (Reverse((function.wrong, function.unknown)), function.start));
        functions.truncate(MAX_FUNCTIONS);
        Comparison {
            schema_version: json::SCHEMA_VERSION,
            instructions: agreement.total(),
            agree: agreement.agree,
            unknown: agreement.unknown,
            wrong: agreement.wrong,
            late: agreement.contradictory,
            late_wrong: agreement.contradictory_wrong,
            functions,
        }
    }
}
