//! The GDB remote protocol server that runs beside the program on the target.
