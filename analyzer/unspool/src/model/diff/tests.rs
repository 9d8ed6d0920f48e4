//! Tests of the comparison with built facts.
