//! Compares gdb at the same stops. gdb gets a second run of the program, which executes the same
//! instructions.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::under_qemu;

/// Python for gdb: steps to each stop, and prints the program counters of all frames.
const SCRIPT: &str = r"
import gdb
gdb.execute('set pagination off')
gdb.execute('set confirm off')
gdb.execute('set backtrace past-main on')
gdb.execute('set backtrace past-entry on')
gdb.execute('set backtrace limit 100')
at = 0
for stop in [int(line) for line in open(STOPS)]:
    if stop > at:
        gdb.execute('stepi %d' % (stop - at), to_string=True)
        at = stop
    pcs = []
    try:
        frame = gdb.newest_frame()
        while frame is not None:
            pcs.append(frame.pc())
            frame = frame.older()
    except gdb.error:
        pass
    print('stop', stop, *['%x' % pc for pc in pcs])
gdb.execute('kill')
";

/// Number of stops at which gdb's frames are right, and number at which the direct caller is
/// missing or wrong. `truths` has the stops by number of executed instructions. Frames beyond the
/// program's first function are ignored. gdb reads `file`.
pub(super) fn compare(
    program: &Path,
    file: &Path,
    truths: &BTreeMap<usize, Vec<u64>>,
) -> [usize; 2] {
    let server = under_qemu::start(program, None);
    let list = program.with_extension("stops");
    let stops: String = truths.keys().map(|stop| format!("{stop}\n")).collect();
    std::fs::write(&list, stops).expect("list of stops");
    let script = program.with_extension("py");
    std::fs::write(&script, SCRIPT.replace("STOPS", &format!("{list:?}"))).expect("script");
    let output = Command::new("gdb-multiarch")
        .args(["-nx", "-batch", "-ex"])
        .arg(format!("target remote {}", server.socket.display()))
        .arg("-x")
        .arg(&script)
        .arg(file)
        .output()
        .expect("gdb-multiarch");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut counts = [0; 2];
    let mut seen = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("stop ")) {
        let mut words = line.split(' ');
        let stop: usize = words.next().expect("stop").parse().expect("number");
        let pcs: Vec<u64> = words
            .map(|pc| u64::from_str_radix(pc, 16).expect("pc"))
            .collect();
        let truth = &truths[&stop];
        counts[0] += usize::from(pcs.starts_with(truth));
        counts[1] += usize::from(pcs.get(1) != truth.get(1));
        seen += 1;
    }
    assert_eq!(
        seen,
        truths.len(),
        "gdb: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    counts
}
