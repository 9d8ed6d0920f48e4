//! The table of primitives: the names of each function and its operation.

use super::{Kind, Operation, Primitive};

const fn of(
    kind: Kind,
    operation: Operation,
    object: u8,
    names: &'static [&'static str],
) -> Primitive {
    Primitive {
        names,
        kind,
        operation,
        object,
        mutex: None,
        timed: false,
        internal: false,
    }
}

const fn timed(mut primitive: Primitive) -> Primitive {
    primitive.timed = true;
    primitive
}

const fn internal(mut primitive: Primitive) -> Primitive {
    primitive.internal = true;
    primitive
}

const fn with_mutex(mut primitive: Primitive, argument: u8) -> Primitive {
    primitive.mutex = Some(argument);
    primitive
}

/// All functions known by their symbol. If a type of C11 or C++ is a thin wrapper of POSIX, the
/// table has the POSIX functions that it calls.
pub static PRIMITIVES: &[Primitive] = &[
    of(
        Kind::Mutex,
        Operation::Lock,
        0,
        &[
            "pthread_mutex_lock",
            "__pthread_mutex_lock",
            "___pthread_mutex_lock",
        ],
    ),
    timed(of(
        Kind::Mutex,
        Operation::Lock,
        0,
        &[
            "pthread_mutex_timedlock",
            "__pthread_mutex_timedlock",
            "___pthread_mutex_timedlock",
            "__pthread_mutex_timedlock64",
            "___pthread_mutex_timedlock64",
            "pthread_mutex_clocklock",
            "__pthread_mutex_clocklock",
            "___pthread_mutex_clocklock",
            "__pthread_mutex_clocklock64",
            "___pthread_mutex_clocklock64",
            "__pthread_mutex_timedlock_time64",
        ],
    )),
    of(
        Kind::Mutex,
        Operation::TryLock,
        0,
        &[
            "pthread_mutex_trylock",
            "__pthread_mutex_trylock",
            "___pthread_mutex_trylock",
        ],
    ),
    of(
        Kind::Mutex,
        Operation::Unlock,
        0,
        &[
            "pthread_mutex_unlock",
            "__pthread_mutex_unlock",
            "___pthread_mutex_unlock",
        ],
    ),
    of(
        Kind::Mutex,
        Operation::Init,
        0,
        &[
            "pthread_mutex_init",
            "__pthread_mutex_init",
            "___pthread_mutex_init",
        ],
    ),
    of(
        Kind::Mutex,
        Operation::Destroy,
        0,
        &[
            "pthread_mutex_destroy",
            "__pthread_mutex_destroy",
            "___pthread_mutex_destroy",
        ],
    ),
    internal(of(
        Kind::Mutex,
        Operation::Lock,
        0,
        &[
            "__pthread_mutex_lock_full",
            "__pthread_mutex_cond_lock",
            "__pthread_mutex_cond_lock_full",
            "__pthread_mutex_clocklock_common",
        ],
    )),
    internal(of(
        Kind::Mutex,
        Operation::TryLock,
        0,
        &["__pthread_mutex_trylock_full"],
    )),
    internal(of(
        Kind::Mutex,
        Operation::Unlock,
        0,
        &[
            "__pthread_mutex_unlock_usercnt",
            "__pthread_mutex_unlock_full",
        ],
    )),
    of(
        Kind::Rwlock,
        Operation::ReadLock,
        0,
        &[
            "pthread_rwlock_rdlock",
            "__pthread_rwlock_rdlock",
            "___pthread_rwlock_rdlock",
        ],
    ),
    timed(of(
        Kind::Rwlock,
        Operation::ReadLock,
        0,
        &[
            "pthread_rwlock_timedrdlock",
            "__pthread_rwlock_timedrdlock",
            "___pthread_rwlock_timedrdlock",
            "__pthread_rwlock_timedrdlock64",
            "___pthread_rwlock_timedrdlock64",
            "pthread_rwlock_clockrdlock",
            "__pthread_rwlock_clockrdlock",
            "___pthread_rwlock_clockrdlock",
            "__pthread_rwlock_clockrdlock64",
            "___pthread_rwlock_clockrdlock64",
            "__pthread_rwlock_timedrdlock_time64",
        ],
    )),
    of(
        Kind::Rwlock,
        Operation::TryReadLock,
        0,
        &[
            "pthread_rwlock_tryrdlock",
            "__pthread_rwlock_tryrdlock",
            "___pthread_rwlock_tryrdlock",
        ],
    ),
    of(
        Kind::Rwlock,
        Operation::WriteLock,
        0,
        &[
            "pthread_rwlock_wrlock",
            "__pthread_rwlock_wrlock",
            "___pthread_rwlock_wrlock",
        ],
    ),
    timed(of(
        Kind::Rwlock,
        Operation::WriteLock,
        0,
        &[
            "pthread_rwlock_timedwrlock",
            "__pthread_rwlock_timedwrlock",
            "___pthread_rwlock_timedwrlock",
            "__pthread_rwlock_timedwrlock64",
            "___pthread_rwlock_timedwrlock64",
            "pthread_rwlock_clockwrlock",
            "__pthread_rwlock_clockwrlock",
            "___pthread_rwlock_clockwrlock",
            "__pthread_rwlock_clockwrlock64",
            "___pthread_rwlock_clockwrlock64",
            "__pthread_rwlock_timedwrlock_time64",
        ],
    )),
    of(
        Kind::Rwlock,
        Operation::TryWriteLock,
        0,
        &[
            "pthread_rwlock_trywrlock",
            "__pthread_rwlock_trywrlock",
            "___pthread_rwlock_trywrlock",
        ],
    ),
    of(
        Kind::Rwlock,
        Operation::Unlock,
        0,
        &[
            "pthread_rwlock_unlock",
            "__pthread_rwlock_unlock",
            "___pthread_rwlock_unlock",
        ],
    ),
    of(
        Kind::Rwlock,
        Operation::Init,
        0,
        &[
            "pthread_rwlock_init",
            "__pthread_rwlock_init",
            "___pthread_rwlock_init",
        ],
    ),
    of(
        Kind::Rwlock,
        Operation::Destroy,
        0,
        &[
            "pthread_rwlock_destroy",
            "__pthread_rwlock_destroy",
            "___pthread_rwlock_destroy",
        ],
    ),
    with_mutex(
        of(
            Kind::Cond,
            Operation::Wait,
            0,
            &[
                "pthread_cond_wait",
                "__pthread_cond_wait",
                "___pthread_cond_wait",
                "__pthread_cond_wait_common",
                "__pthread_cond_wait_2_0",
            ],
        ),
        1,
    ),
    timed(with_mutex(
        of(
            Kind::Cond,
            Operation::Wait,
            0,
            &[
                "pthread_cond_timedwait",
                "__pthread_cond_timedwait",
                "___pthread_cond_timedwait",
                "__pthread_cond_timedwait64",
                "___pthread_cond_timedwait64",
                "__pthread_cond_timedwait_2_0",
                "pthread_cond_clockwait",
                "__pthread_cond_clockwait",
                "___pthread_cond_clockwait",
                "__pthread_cond_clockwait64",
                "___pthread_cond_clockwait64",
                "__pthread_cond_timedwait_time64",
            ],
        ),
        1,
    )),
    of(
        Kind::Cond,
        Operation::Signal,
        0,
        &[
            "pthread_cond_signal",
            "__pthread_cond_signal",
            "___pthread_cond_signal",
            "__pthread_cond_signal_2_0",
        ],
    ),
    of(
        Kind::Cond,
        Operation::Broadcast,
        0,
        &[
            "pthread_cond_broadcast",
            "__pthread_cond_broadcast",
            "___pthread_cond_broadcast",
            "__pthread_cond_broadcast_2_0",
        ],
    ),
    of(
        Kind::Cond,
        Operation::Init,
        0,
        &[
            "pthread_cond_init",
            "__pthread_cond_init",
            "___pthread_cond_init",
        ],
    ),
    of(
        Kind::Cond,
        Operation::Destroy,
        0,
        &[
            "pthread_cond_destroy",
            "__pthread_cond_destroy",
            "___pthread_cond_destroy",
        ],
    ),
    of(
        Kind::Sem,
        Operation::Wait,
        0,
        &["sem_wait", "__new_sem_wait", "__old_sem_wait"],
    ),
    timed(of(
        Kind::Sem,
        Operation::Wait,
        0,
        &[
            "sem_timedwait",
            "__sem_timedwait",
            "___sem_timedwait",
            "__sem_timedwait64",
            "___sem_timedwait64",
            "sem_clockwait",
            "__sem_clockwait",
            "___sem_clockwait",
            "__sem_clockwait64",
            "___sem_clockwait64",
            "__sem_timedwait_time64",
        ],
    )),
    internal(of(
        Kind::Sem,
        Operation::Wait,
        0,
        &[
            "__new_sem_wait_slow",
            "__new_sem_wait_slow64",
            "__old_sem_wait_slow",
        ],
    )),
    of(
        Kind::Sem,
        Operation::TryWait,
        0,
        &["sem_trywait", "__new_sem_trywait", "__old_sem_trywait"],
    ),
    of(
        Kind::Sem,
        Operation::Post,
        0,
        &["sem_post", "__new_sem_post", "__old_sem_post"],
    ),
    of(
        Kind::Sem,
        Operation::Init,
        0,
        &["sem_init", "__new_sem_init", "__old_sem_init"],
    ),
    of(
        Kind::Sem,
        Operation::Destroy,
        0,
        &["sem_destroy", "__new_sem_destroy"],
    ),
    of(
        Kind::Barrier,
        Operation::Arrive,
        0,
        &[
            "pthread_barrier_wait",
            "__pthread_barrier_wait",
            "___pthread_barrier_wait",
        ],
    ),
    of(
        Kind::Barrier,
        Operation::Init,
        0,
        &[
            "pthread_barrier_init",
            "__pthread_barrier_init",
            "___pthread_barrier_init",
        ],
    ),
    of(
        Kind::Barrier,
        Operation::Destroy,
        0,
        &[
            "pthread_barrier_destroy",
            "__pthread_barrier_destroy",
            "___pthread_barrier_destroy",
        ],
    ),
    of(
        Kind::Once,
        Operation::Once,
        0,
        &["pthread_once", "__pthread_once", "___pthread_once"],
    ),
    internal(of(
        Kind::Once,
        Operation::Once,
        0,
        &["__pthread_once_slow", "__pthread_once_full"],
    )),
    // The Itanium C++ ABI's guard of a local static variable (3.3.3, "One-time Construction API").
    of(Kind::Once, Operation::Once, 0, &["__cxa_guard_acquire"]),
    of(
        Kind::Join,
        Operation::Join,
        0,
        &["pthread_join", "__pthread_join", "___pthread_join"],
    ),
    timed(of(
        Kind::Join,
        Operation::Join,
        0,
        &[
            "pthread_timedjoin_np",
            "__pthread_timedjoin_np",
            "___pthread_timedjoin_np64",
            "__pthread_timedjoin_np64",
            "__pthread_timedjoin_np_time64",
            "pthread_clockjoin_np",
            "__pthread_clockjoin_np",
            "___pthread_clockjoin_np64",
            "__pthread_clockjoin_np64",
        ],
    )),
    internal(of(
        Kind::Join,
        Operation::Join,
        0,
        &[
            "__pthread_clockjoin_ex",
            "__pthread_timedjoin_ex",
            "__pthread_timedwait_tid",
        ],
    )),
    of(
        Kind::Join,
        Operation::TryJoin,
        0,
        &["pthread_tryjoin_np", "__pthread_tryjoin_np"],
    ),
];

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
