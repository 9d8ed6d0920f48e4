//! Client side of the GDB Remote Serial Protocol.
