//! Whole numbers on the command line. The message of clap's own parser shows a range in Rust's
//! syntax.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser for numbers in `range`.
pub(super) fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("expected a whole number from {least} to {most}")
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::super::Cli;
    use super::*;

    /// clap takes a negative number for an option otherwise, and its hint does not help.
    #[test]
    fn negative_numbers_are_values() {
        for args in [
            "record --duration -1 -- true",
            "record --budget -1 -- true",
            "record --cpu --cpu-stack -1 -- true",
            "record --attach -1",
            "report --from -1",
            "report --to -0.5",
            "report --width -80",
            "inspect --width -80",
        ] {
            let args = ["unspool"].into_iter().chain(args.split(' '));
            let kind = Cli::try_parse_from(args.clone()).map_err(|error| error.kind());
            let wanted = Some(ErrorKind::ValueValidation);
            assert_eq!(kind.err(), wanted, "{:?}", args.collect::<Vec<_>>());
        }
    }

    #[test]
    fn names_the_range() {
        let parse = whole(1_u32..=10_000);
        assert_eq!(parse("10000"), Ok(10_000));
        for wrong in ["0", "-1", "10001", "1.5", ""] {
            let expected = "expected a whole number from 1 to 10000";
            assert_eq!(parse(wrong), Err(expected.to_owned()), "{wrong}");
        }
    }
}
