//! ELF images of a debugged program and what can be looked up in them.
