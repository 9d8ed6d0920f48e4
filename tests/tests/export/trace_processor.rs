//! Tests that Perfetto's user interface opens the traces, and that its trace processor finds the
//! report's numbers in them.

use anyhow::Result;

use unspool_tests::perfetto::Perfetto;

use super::{findings_in, perfetto, processes, samples};

/// All traces in one window, because a browser takes seconds to start.
pub(super) fn all() -> Result<()> {
    let mut window = Perfetto::start()?;
    let mut reader = |file: &_| window.read(file);
    perfetto(&mut reader)?;
    findings_in("perfetto", &mut reader)?;
    samples::perfetto(&mut reader)?;
    processes::perfetto(&mut reader)
}
