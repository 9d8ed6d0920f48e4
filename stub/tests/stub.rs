//! Tests the real server with a small raw client, for exact packets, and with real gdb.
//!
//! The raw client does not use the project's own RSP crate, on purpose: without shared code, a
//! misunderstanding on one side cannot hide the same one on the other.

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
    mod samples;
    mod schedule;
    mod signals;
    mod stalls;
    mod threads;
    mod tracepoints;
    mod walking;
    mod watching;
}
