//! Compares the code analysis with CFI on the registers of running programs.
//!
//! `cargo run --release -p unspool-unwind --example sample_code` does this for many more programs.

use unspool_image::Image;
use unspool_unwind::verify::{Sampled, verify_samples};
use unspool_unwind::{CompileOptions, Table};

use crate::perf;
use crate::tools::{Scratch, need};

/// Samples per second of processor time.
const FREQUENCY: u32 = 3989;
/// Minimum number of samples, so that one wrong CFA stays below the limit.
const MIN_SAMPLES: u64 = 4000;

/// Interprets, sorts, compresses and calls into libraries for some seconds of processor time.
const PYTHON: &str = "
import json, re, sqlite3, time, zlib
db = sqlite3.connect(':memory:')
db.execute('create table t(a, b)')
while time.process_time() < 4:
    json.loads(json.dumps([{str(k): [k, 1.5]} for k in range(500)]))
    re.findall('(a|b)+c?', 'abac' * 500)
    sorted(str(k) for k in range(5000))
    db.executemany('insert into t values (?, ?)', ((k, k % 7) for k in range(500)))
    db.execute('select sum(a) from t where b = 3').fetchall()
    zlib.compress(bytes(range(256)) * 200)
";

/// At most 0.05 % of all samples have another CFA than CFI states, with symbols and without.
#[test]
fn the_frames_of_a_running_interpreter() {
    need(&["perf", "/usr/bin/python3"]);
    let folder = Scratch::new("samples");
    let program = ["/usr/bin/python3", "-S", "-c", PYTHON].map(str::to_owned);
    let samples = perf::sample(&program, FREQUENCY, folder.path()).expect("samples");
    for symbols in [true, false] {
        let mut all = Sampled::default();
        let mut files = 0;
        for (path, samples) in &samples {
            let image = Image::open(path).expect("a file that was mapped");
            let table = Table::compile(&image, &CompileOptions::default());
            let samples = samples.iter().map(|(svma, registers)| (*svma, registers));
            let of_file = verify_samples(&image, &table, symbols, samples);
            files += u64::from(of_file.total() > 0);
            all.add(&of_file);
            if of_file.wrong > 0 {
                eprintln!("{}: {:#x?}", path.display(), of_file.disagreements);
            }
        }
        eprintln!("symbols: {symbols}, files: {files}, {all:?}");
        assert!(all.total() >= MIN_SAMPLES, "{} samples", all.total());
        assert!(files >= 4, "{files} files");
        // A skipped sample proves nothing.
        assert!(all.skipped * 100 <= all.total(), "{} skipped", all.skipped);
        assert!(all.wrong * 2000 <= all.total(), "{} wrong", all.wrong);
        assert!(all.unknown * 100 <= all.total(), "{} unknown", all.unknown);
    }
}
