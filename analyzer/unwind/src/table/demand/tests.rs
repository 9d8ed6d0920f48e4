//! Tests that rows compiled one by one equal those of the whole table, and that no others are
//! compiled.

use std::path::Path;

use unspool_image::Image;

use crate::rows::Rows;
use crate::rule::{Cfa, Place, Source};
use crate::table::{CompileOptions, Table};

fn image(path: &str) -> Image {
    Image::open(Path::new(path)).expect(path)
}

/// `count` addresses spread over the text.
fn spread(image: &Image, count: u64) -> Vec<u64> {
    let text = image.text_ranges().into_iter();
    let text = text
        .max_by_key(|range| range.end - range.start)
        .expect("text");
    let step = ((text.end - text.start) / count) | 1;
    (0..count).map(|at| text.start + at * step).collect()
}

/// A row in a form that can be compared between tables.
type RowText = (String, String, Vec<(u8, String)>, bool);

fn row_text(rows: &Rows, svma: u64) -> Option<RowText> {
    let row = rows.lookup(svma)?;
    let place = |place: Place| match place {
        Place::AtExpression(expression) => format!("at {:?}", rows.expression(expression)),
        Place::Value(expression) => format!("is {:?}", rows.expression(expression)),
        other => format!("{other:?}"),
    };
    let cfa = match row.rule.cfa {
        Cfa::Expression(expression) => format!("{:?}", rows.expression(expression)),
        other => format!("{other:?}"),
    };
    let saved = row
        .rule
        .saved
        .iter()
        .map(|(register, at)| (*register, place(*at)));
    Some((
        cfa,
        place(row.rule.ra),
        saved.collect(),
        row.rule.signal_frame,
    ))
}

#[test]
fn single_entries_equal_the_whole() {
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/bin/bash",
    ] {
        let image = image(path);
        let all = Table::compile(&image, &CompileOptions::default());
        let mut known = 0;
        for svma in spread(&image, 3000) {
            // Each address gets its own table, so that no earlier lookup has compiled its row.
            let single = Table::on_demand(&image, &CompileOptions::default());
            let rows = single.rows_at(Source::Cfi, svma);
            let found = rows.and_then(|rows| row_text(&rows, svma));
            let truth = row_text(all.rows(Source::Cfi).expect("rows"), svma);
            assert_eq!(found, truth, "{path} {svma:#x}");
            assert!(single.stated.get().is_none(), "{svma:#x} had all compiled");
            known += u64::from(found.is_some());
        }
        assert!(known > 2500, "{path}: {known}");
    }
}

#[test]
fn everything_is_compiled_after_many_lookups() {
    let image = image("/bin/bash");
    let table = Table::on_demand(&image, &CompileOptions::default());
    let mut compiled_after = None;
    for (count, svma) in spread(&image, 2000).into_iter().enumerate() {
        table.quick(svma);
        if table.stated.get().is_some() {
            compiled_after.get_or_insert(count);
        }
    }
    let compiled_after = compiled_after.expect("it was");
    assert!((64..1000).contains(&compiled_after), "{compiled_after}");
    let all = Table::compile(&image, &CompileOptions::default());
    for svma in spread(&image, 5000) {
        assert_eq!(
            table.quick(svma).is_some(),
            all.quick(svma).is_some(),
            "{svma:#x}"
        );
    }
}

#[test]
fn code_of_a_large_file_is_analysed_by_region() {
    let image = image("/lib/x86_64-linux-gnu/libc.so.6");
    let table = Table::on_demand(&image, &CompileOptions::default());
    let whole = Table::compile(&image, &CompileOptions::default());
    let whole = whole.rows(Source::Code).expect("code");
    let (mut agree, mut differ) = (0, 0);
    let asked = spread(&image, 60);
    for svma in &asked {
        let rows = table.rows_at(Source::Code, *svma);
        let found = rows.and_then(|rows| Some(row_text(&rows, *svma)?.0));
        match (found, row_text(whole, *svma)) {
            (Some(one), Some(other)) if one == other.0 => agree += 1,
            (Some(one), other) => {
                differ += 1;
                println!("{svma:#x}: {one}, and {other:?}");
            }
            (None, _) => {}
        }
    }
    assert!(agree >= 50 && differ == 0, "{agree} agree, {differ} differ");
    let regions = table.known_regions();
    assert!((10..=60).contains(&regions), "{regions} regions");
    // A repeated lookup analyses nothing.
    for svma in &asked {
        table.rows_at(Source::Code, *svma);
    }
    assert_eq!(table.known_regions(), regions);
    assert!(
        table.analysis_made().is_none(),
        "all of the text was analysed"
    );
}
