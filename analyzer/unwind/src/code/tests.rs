//! Functions as compilers make them, byte by byte.
