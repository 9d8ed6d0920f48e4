//! `--prefer`: the order in which unwind rules are tried. Apart because several commands unwind.

use clap::{Args, ValueEnum};
use unspool_unwind::{Provenance, Source};

#[derive(Debug, Clone, Default, Args)]
pub(super) struct Prefer {
    /// Try these unwind rules first, in this order [default: cfi,exidx,code,fp]
    #[arg(long, value_name = "SOURCES", value_enum, value_delimiter = ',')]
    prefer: Vec<Way>,
}

/// A source of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Call frame information
    Cfi,
    /// ARM's exception index
    Exidx,
    /// Analysis of the machine code
    Code,
    /// Chains of frame pointers
    Fp,
}

impl Prefer {
    /// The order in which tables are merged. Chains of frame pointers have no table.
    pub(super) fn sources(&self) -> Vec<Source> {
        let source = |way: &Way| match way {
            Way::Cfi => Some(Source::Cfi),
            Way::Exidx => Some(Source::Exidx),
            Way::Code => Some(Source::Code),
            Way::Fp => None,
        };
        self.prefer.iter().filter_map(source).collect()
    }

    /// The order in which a walk tries the rules.
    pub(super) fn ways(&self) -> Vec<Provenance> {
        let way = |way: &Way| match way {
            Way::Cfi => Provenance::Cfi,
            Way::Exidx => Provenance::Exidx,
            Way::Code => Provenance::Code,
            Way::Fp => Provenance::FramePointer,
        };
        self.prefer.iter().map(way).collect()
    }
}
