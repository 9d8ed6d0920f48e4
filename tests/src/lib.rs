//! Builds the test programs and starts the peers that the tests compare against.
