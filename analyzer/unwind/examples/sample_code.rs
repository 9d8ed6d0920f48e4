//! Compares the code analysis with call frame information where programs really execute:
//! `sample_code [--list] [-- PROGRAM ARGUMENTS...]`.
//!
//! Runs the program, or a default set of programs, under `perf record`. Evaluates both rules on the
//! registers of every sample, with and without symbols. `--list` adds the addresses where they
//! differ. x86-64 only.

#[path = "../tests/samples/perf.rs"]
mod perf;

use std::collections::BTreeMap;
use std::path::Path;

use unspool_image::{Finder, Image, Wanted};
use unspool_unwind::verify::{Sampled, Verdict, verify_samples};
use unspool_unwind::{CompileOptions, Table};

/// Samples per second of processor time. It is odd, so that it stays out of step with loops.
const FREQUENCY: u32 = 3989;

/// The default programs. `$I` is a video that the first one creates.
const PROGRAMS: &[&str] = &[
    "ffmpeg -v error -y -f lavfi -i testsrc=size=640x360:rate=25:duration=6 \
     -f lavfi -i sine=duration=6 -c:v libx264 -preset veryfast -c:a aac in.mkv && \
     ffmpeg -v error -y -i in.mkv -t 2 -c:v libvpx-vp9 -cpu-used 8 -c:a libopus out.webm && \
     ffmpeg -v error -y -i in.mkv -c:v mpeg4 -c:a libmp3lame out.avi",
    "/usr/bin/python3.11 -c 'import re, json, decimal, hashlib, zlib, sqlite3, random\n\
     for i in range(40):\n\
     \x20json.loads(json.dumps([{str(k): [k, 1.5]} for k in range(2000)]))\n\
     \x20re.findall(r\"(a|b)+c?\", \"abac\" * 3000)\n\
     \x20sorted(random.random() for k in range(20000))\n\
     \x20sum(decimal.Decimal(k).sqrt() for k in range(300))\n\
     \x20zlib.compress(hashlib.sha256(b\"x\" * 99999).digest() * 9999)'",
    "node -e 'let s = 0; for (let i = 0; i < 150; i++) { \
     s += JSON.stringify(JSON.parse(JSON.stringify(Array.from({length: 9000}, (_, k) => ({k}))))).length; \
     s += require(\"zlib\").deflateSync(Buffer.alloc(99999, String(i))).length; \
     s += \"abc\".repeat(9999).replace(/b+/g, \"x\").length; }'",
    "sqlite3 :memory: 'create table t(a, b); create index i on t(b); with recursive c(x) as \
     (select 1 union all select x + 1 from c where x < 400000) insert into t select x, \
     (x * 7919) % 100003 from c; select count(*), sum(b) from t where b in (select a from t);'",
    "git init -q g && cd g && for i in $(seq 60); do seq $i 9999 > f$i; done && git add -A && \
     git -c user.name=a -c user.email=a commit -qm a && git gc -q && git log -p --stat | tail -1",
    "/usr/bin/gdb -batch -ex 'info functions str' -ex 'python print(sum(k * k for k in range(3000000)))' \
     /usr/bin/gdb",
    "printf '#include <map>\\n#include <regex>\\n#include <iostream>\\n#include <algorithm>\\n\
     int main() { std::map<std::string, int> m; std::regex r(\"a+\"); \
     std::cout << std::regex_match(\"aa\", r) << m[\"x\"]; }\\n' > t.cpp && clang++ -O2 -c t.cpp && \
     g++ -O1 -c t.cpp",
    "perl -e 'for (1..60) { my %h; $h{$_ % 977} .= $_ for 1..20000; my $s = join \",\", sort keys %h; \
     $s =~ s/(\\d)(\\d)/$2$1/g; }'; seq 900000 > n; xz -k n; gzip -k n; bzip2 -k n || true; \
     sort -R n | sort -n | sha256sum; zstd -q -12 n || true; grep -cE '(1|2)+9' n; \
     awk '{ s += length($0) * $1 } END { print s }' n; openssl dgst -sha512 n; sed 's/1/2/g' n",
    "for i in $(seq 300); do /usr/bin/gdb --version; ffmpeg -version; done",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut list = false;
    let mut program = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => list = true,
            "--" => program = arguments.by_ref().collect(),
            _ => return Err("usage: sample_code [--list] [-- PROGRAM ARGUMENTS...]".into()),
        }
    }
    let programs = match program.is_empty() {
        true => {
            let shell = |text: &&str| ["sh", "-c", text].map(str::to_owned).to_vec();
            PROGRAMS.iter().map(shell).collect()
        }
        false => vec![program],
    };
    let folder = tempfile::tempdir()?;
    let mut samples = perf::Samples::new();
    for program in &programs {
        match perf::sample(program, FREQUENCY, folder.path()) {
            Ok(more) => {
                for (path, more) in more {
                    samples.entry(path).or_default().extend(more);
                }
            }
            Err(why) => println!("not sampled: {why}"),
        }
    }
    println!("  samples  skipped | with symbols: unknown wrong | without: unknown wrong | file");
    let mut totals = [Sampled::default(), Sampled::default()];
    let mut all = BTreeMap::new();
    for (path, samples) in &samples {
        let Ok(image) = Image::open(path) else {
            continue;
        };
        let table = Table::compile(&image, &CompileOptions::default());
        let of = |symbols| {
            let samples = samples.iter().map(|(svma, registers)| (*svma, registers));
            verify_samples(&image, &table, symbols, samples)
        };
        let both = [of(true), of(false)];
        for (total, one) in totals.iter_mut().zip(&both) {
            total.add(one);
        }
        row(&both, &path.display().to_string());
        all.insert(path, both);
    }
    row(&totals, "all files");
    if list {
        for (path, [_, without]) in &all {
            list_of(path, without);
        }
    }
    Ok(())
}

fn row([with, without]: &[Sampled; 2], name: &str) {
    let share = |part: u64, of: &Sampled| 100.0 * part as f64 / of.total().max(1) as f64;
    println!(
        "{:9} {:8} | {:20.3} {:6.3} | {:15.3} {:6.3} | {name}",
        with.total(),
        with.skipped,
        share(with.unknown, with),
        share(with.wrong, with),
        share(without.unknown, without),
        share(without.wrong, without),
    );
}

fn list_of(path: &Path, sampled: &Sampled) {
    let wanted = Wanted {
        path: &path.display().to_string(),
        build_id: None,
        local: true,
    };
    let image = Finder::default()
        .find(&wanted, None)
        .map(|found| found.image);
    let mut worst: Vec<_> = sampled.disagreements.iter().collect();
    worst.sort_by_key(|(_, one)| {
        (
            one.verdict != Verdict::Wrong,
            std::cmp::Reverse(one.samples),
        )
    });
    for (svma, one) in worst.iter().take(25) {
        let symbol = image
            .as_ref()
            .ok()
            .and_then(|image| image.symbols().containing(**svma));
        println!(
            "{} {svma:#x} {} {} {:?} stated {:?} analysed {:?}",
            path.display(),
            symbol.map_or("?", |symbol| symbol.name),
            one.samples,
            one.verdict,
            one.stated,
            one.analysed,
        );
    }
}
