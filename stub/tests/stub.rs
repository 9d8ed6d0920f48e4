//! Drives the real server, once with a small raw client for exact packets and once with real gdb.
//!
//! The raw client is written here, on purpose without the project's own RSP crate: the
//! two sides share no code, so that neither's misunderstanding hides the other's.

#![allow(unreachable_pub)]

mod stub {
    pub mod client;
    pub mod gdb;
    pub mod programs;
    pub mod server;
    pub mod spinning;
    pub mod target;

    mod attaching;
    mod bad_input;
    mod breakpoints;
    mod budget;
    mod changing_text;
    mod children;
    mod clients;
    mod commands;
    mod conditions;
    mod crowds;
    mod debugger;
    mod doors;
    mod ends;
    mod fast;
    mod fatal;
    mod interrupts;
    mod killed;
    mod packets;
    mod registers;
    mod replay;
    mod schedule;
    mod signals;
    mod stalls;
    mod threads;
    mod tracepoints;
    mod walking;
    mod watching;
}
