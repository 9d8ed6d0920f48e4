//! The primitives of Rust's and C++'s own libraries, by their demangled names.

use super::table::{of, timed, with_mutex};
use super::{Kind, Operation, Primitive};

/// Primitives of Rust and C++ that wait by futex themselves: the beginning of the demangled path,
/// its end without generic arguments, and the primitive.
pub(super) static PATHS: &[(&str, &str, Primitive)] = &[
    (
        "std::sys",
        "::Mutex::lock_contended",
        of(Kind::Mutex, Operation::Lock, 0, &["Mutex::lock"]),
    ),
    (
        "std::sys",
        "::RwLock::read_contended",
        of(Kind::Rwlock, Operation::ReadLock, 0, &["RwLock::read"]),
    ),
    (
        "std::sys",
        "::RwLock::write_contended",
        of(Kind::Rwlock, Operation::WriteLock, 0, &["RwLock::write"]),
    ),
    (
        "std::sys",
        "::Condvar::wait_optional_timeout",
        with_mutex(of(Kind::Cond, Operation::Wait, 0, &["Condvar::wait"]), 1),
    ),
    (
        "std::sys",
        "::Condvar::wait",
        with_mutex(of(Kind::Cond, Operation::Wait, 0, &["Condvar::wait"]), 1),
    ),
    (
        "std::sys",
        "::Condvar::wait_timeout",
        timed(with_mutex(
            of(Kind::Cond, Operation::Wait, 0, &["Condvar::wait_timeout"]),
            1,
        )),
    ),
    (
        "std::sys",
        "::Once::call",
        of(Kind::Once, Operation::Once, 0, &["Once::call_once"]),
    ),
    (
        "std::sys",
        "::Once::wait",
        of(Kind::Once, Operation::Once, 0, &["Once::wait"]),
    ),
    (
        "std::sys",
        "::Parker::park",
        of(Kind::Futex, Operation::Wait, 0, &["thread::park"]),
    ),
    (
        "std::sys",
        "::Parker::park_timeout",
        timed(of(
            Kind::Futex,
            Operation::Wait,
            0,
            &["thread::park_timeout"],
        )),
    ),
    (
        "std::latch",
        "::wait",
        of(Kind::Barrier, Operation::Wait, 0, &["std::latch::wait"]),
    ),
    (
        "std::latch",
        "::arrive_and_wait",
        of(
            Kind::Barrier,
            Operation::Arrive,
            0,
            &["std::latch::arrive_and_wait"],
        ),
    ),
    (
        "std::barrier",
        "::wait",
        of(Kind::Barrier, Operation::Wait, 0, &["std::barrier::wait"]),
    ),
    (
        "std::counting_semaphore",
        "::acquire",
        of(
            Kind::Sem,
            Operation::Wait,
            0,
            &["std::counting_semaphore::acquire"],
        ),
    ),
    (
        "std::__atomic_semaphore",
        "::_M_acquire",
        of(
            Kind::Sem,
            Operation::Wait,
            0,
            &["std::counting_semaphore::acquire"],
        ),
    ),
    (
        "std::__atomic_futex_unsigned_base",
        "::_M_futex_wait_until",
        of(Kind::Future, Operation::Wait, 0, &["std::future::wait"]),
    ),
    (
        "std::__atomic_futex_unsigned_base",
        "::_M_futex_wait_until_steady",
        timed(of(
            Kind::Future,
            Operation::Wait,
            0,
            &["std::future::wait_for"],
        )),
    ),
    (
        "std::atomic",
        "::wait",
        of(Kind::Futex, Operation::Wait, 0, &["std::atomic::wait"]),
    ),
    (
        "std::__atomic_base",
        "::wait",
        of(Kind::Futex, Operation::Wait, 0, &["std::atomic::wait"]),
    ),
];

/// The primitives of libstdc++ that share one template for their waits, by the name of the
/// template's argument.
pub(super) static WAITERS: &[(&str, Primitive)] = &[
    (
        "std::latch::",
        of(Kind::Barrier, Operation::Wait, 0, &["std::latch::wait"]),
    ),
    (
        "barrier",
        of(Kind::Barrier, Operation::Wait, 0, &["std::barrier::wait"]),
    ),
    (
        "semaphore",
        of(
            Kind::Sem,
            Operation::Wait,
            0,
            &["std::counting_semaphore::acquire"],
        ),
    ),
    (
        "",
        of(Kind::Futex, Operation::Wait, 0, &["std::atomic::wait"]),
    ),
];
