//! The functions of synchronization primitives by name: the operation of each, and the arguments
//! that it uses.
//!
//! The table is beside `collect` and `model` because both need it: the collector plants probes at
//! these functions, and the model finds in a stack the function in which a thread waits. Sources:
//! POSIX.1-2017 for the arguments; the dynamic and full symbol tables of glibc 2.31 to 2.41, musl
//! 1.2 and libstdc++ for the names of each function.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

mod languages;
mod table;

use languages::{PATHS, WAITERS};
pub use table::PRIMITIVES;

/// The kind of object at which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A lock with one holder at a time.
    Mutex,
    /// A lock with many readers or one writer.
    Rwlock,
    /// A condition variable.
    Cond,
    /// A counting semaphore.
    Sem,
    /// A meeting point of a fixed number of threads.
    Barrier,
    /// An action that one thread executes once while all others wait.
    Once,
    /// The end of another thread.
    Join,
    /// A result that another thread provides: C++'s `std::future`.
    Future,
    /// A word in memory of unknown meaning.
    Futex,
}

impl Kind {
    /// The name in JSON: `mutex`, `rwlock`, `cond`, `sem`, `barrier`, `once`, `join`, `future` or
    /// `futex`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Rwlock => "rwlock",
            Kind::Cond => "cond",
            Kind::Sem => "sem",
            Kind::Barrier => "barrier",
            Kind::Once => "once",
            Kind::Join => "join",
            Kind::Future => "future",
            Kind::Futex => "futex",
        }
    }

    /// The name in a sentence, such as `condition variable`.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Rwlock => "read-write lock",
            Kind::Cond => "condition variable",
            Kind::Sem => "semaphore",
            Kind::Barrier => "barrier",
            Kind::Once => "once control",
            Kind::Join => "thread",
            Kind::Future => "future",
            Kind::Futex => "futex",
        }
    }
}

impl Kind {
    /// True for objects that one thread holds while others wait: mutexes and read-write locks.
    pub fn is_lock(self) -> bool {
        matches!(self, Kind::Mutex | Kind::Rwlock)
    }

    /// The preposition of a wait: `for` a mutex, `at` a barrier.
    pub fn preposition(self) -> &'static str {
        match self {
            Kind::Cond | Kind::Barrier | Kind::Futex => "at",
            _ => "for",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The operation of a function on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Takes a mutex, and waits until it can.
    Lock,
    /// Takes a mutex if it is free.
    TryLock,
    /// Takes a read-write lock for reading, and waits until it can.
    ReadLock,
    /// Takes a read-write lock for reading if that needs no waiting.
    TryReadLock,
    /// Takes a read-write lock for writing, and waits until it can.
    WriteLock,
    /// Takes a read-write lock for writing if that needs no waiting.
    TryWriteLock,
    /// Releases a mutex or read-write lock.
    Unlock,
    /// Waits at a condition variable or semaphore, or for a value.
    Wait,
    /// Decrements a semaphore if that needs no waiting.
    TryWait,
    /// Wakes one thread that waits at a condition variable.
    Signal,
    /// Wakes all threads that wait at a condition variable.
    Broadcast,
    /// Increments a semaphore.
    Post,
    /// Arrives at a barrier and waits for the others.
    Arrive,
    /// Executes an action once, or waits until another thread has executed it.
    Once,
    /// Waits for the end of a thread.
    Join,
    /// Checks for the end of a thread without waiting.
    TryJoin,
    /// Initializes the object.
    Init,
    /// Destroys the object.
    Destroy,
}

impl Operation {
    /// The name in JSON, such as `lock`, `read-lock` or `signal`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Lock => "lock",
            Operation::TryLock => "try-lock",
            Operation::ReadLock => "read-lock",
            Operation::TryReadLock => "try-read-lock",
            Operation::WriteLock => "write-lock",
            Operation::TryWriteLock => "try-write-lock",
            Operation::Unlock => "unlock",
            Operation::Wait => "wait",
            Operation::TryWait => "try-wait",
            Operation::Signal => "signal",
            Operation::Broadcast => "broadcast",
            Operation::Post => "post",
            Operation::Arrive => "arrive",
            Operation::Once => "once",
            Operation::Join => "join",
            Operation::TryJoin => "try-join",
            Operation::Init => "init",
            Operation::Destroy => "destroy",
        }
    }

    /// True if the function may block.
    pub fn may_wait(self) -> bool {
        matches!(
            self,
            Operation::Lock
                | Operation::ReadLock
                | Operation::WriteLock
                | Operation::Wait
                | Operation::Arrive
                | Operation::Once
                | Operation::Join
        )
    }

    /// True if the function lets other threads go on, without having held anything.
    pub fn wakes(self) -> bool {
        matches!(
            self,
            Operation::Post | Operation::Signal | Operation::Broadcast
        )
    }

    /// True if a successful call makes the thread a holder.
    pub fn acquires(self) -> bool {
        matches!(
            self,
            Operation::Lock
                | Operation::TryLock
                | Operation::ReadLock
                | Operation::TryReadLock
                | Operation::WriteLock
                | Operation::TryWriteLock
        )
    }
}

/// A function of a primitive.
#[derive(Debug, PartialEq, Eq)]
pub struct Primitive {
    /// Its names, the documented one first. Versions and aliases may have other addresses or share
    /// one.
    pub names: &'static [&'static str],
    /// The kind of its object.
    pub kind: Kind,
    /// The operation on the object.
    pub operation: Operation,
    /// Index of the argument that names the object; for [`Kind::Join`] it is the thread's handle.
    pub object: u8,
    /// Index of the argument that names the mutex that a wait releases meanwhile.
    pub mutex: Option<u8>,
    /// The caller limits the wait.
    pub timed: bool,
    /// Only functions of this table call it, so a probe of both would count a call twice.
    pub internal: bool,
}

impl Primitive {
    /// The documented name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The documented name of the function that programs call.
    pub fn public_name(&self) -> &'static str {
        let does_the_same = |other: &&Primitive| {
            let what = |it: &Primitive| (it.kind, it.operation, it.timed);
            !other.internal && what(other) == what(self)
        };
        let mut others = PRIMITIVES.iter();
        let public = others.find(does_the_same).filter(|_| self.internal);
        public.unwrap_or(self).name()
    }

    /// True if a thread may wait in it at the object. In glibc, signallers of a condition variable
    /// may wait for each other, and a thread that destroys one may wait for its last waiters.
    pub fn may_wait(&self) -> bool {
        let waits = match self.kind {
            Kind::Cond => matches!(
                self.operation,
                Operation::Signal | Operation::Broadcast | Operation::Destroy
            ),
            Kind::Barrier => self.operation == Operation::Destroy,
            _ => false,
        };
        waits || self.operation.may_wait()
    }

    /// True if it belongs to Rust or C++, not to a C library.
    pub fn is_of_a_language(&self) -> bool {
        self.name().contains("::")
    }
}

/// True for a function that takes or releases a mutex or a read-write lock.
pub fn is_of_lock(function: &str) -> bool {
    find(function).is_some_and(|primitive| primitive.kind.is_lock())
}

/// Finds the primitive of a function by its symbol's name, or by its demangled path with or without
/// arguments.
pub fn find(function: &str) -> Option<&'static Primitive> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Primitive>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let each = |primitive: &'static Primitive| {
            let names = primitive.names.iter();
            names.map(move |name| (*name, primitive))
        };
        PRIMITIVES.iter().flat_map(each).collect()
    });
    let plain = function.split('@').next().unwrap_or(function);
    // The compiler adds a suffix to the name of a copy: `__new_sem_wait_slow.constprop.0`.
    let source = plain.split('.').next().unwrap_or(plain);
    if let Some(primitive) = by_name.get(source) {
        return Some(primitive);
    }
    let plain = ["void ", "bool "]
        .iter()
        .find_map(|result| plain.strip_prefix(result))
        .unwrap_or(plain);
    if !plain.starts_with("std::") {
        return None;
    }
    if plain.starts_with("std::__atomic_wait_address") {
        // libstdc++ (bits/atomic_wait.h): the type of the repeated check names the waiting class.
        let found = WAITERS.iter().find(|(inside, _)| plain.contains(inside));
        return found.map(|(_, primitive)| primitive);
    }
    let path = without_arguments(plain);
    let found = PATHS
        .iter()
        .find(|(start, end, _)| path.starts_with(start) && path.ends_with(end));
    found.map(|(_, _, primitive)| primitive)
}

/// Reduces a path: `std::barrier<F>::wait(T&&) const` becomes `std::barrier::wait`, and Rust's
/// `std::x::<T>::y` becomes `std::x::y`.
fn without_arguments(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut depth = 0usize;
    for c in path.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.replace("::::", "::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = PRIMITIVES.iter().flat_map(|p| p.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn versions_and_stubs_are_the_same_function() {
        let lock = find("pthread_mutex_lock").unwrap();
        assert_eq!(
            (lock.kind, lock.operation, lock.object),
            (Kind::Mutex, Operation::Lock, 0)
        );
        for name in [
            "___pthread_mutex_lock",
            "pthread_mutex_lock@plt",
            "pthread_mutex_lock@@GLIBC_2.2.5",
            "__pthread_mutex_lock.part.0",
        ] {
            assert_eq!(find(name), Some(lock), "{name}");
        }
        let wait = find("___pthread_cond_timedwait64").unwrap();
        assert_eq!((wait.mutex, wait.timed), (Some(1), true));
        assert_eq!(find("pthread_create"), None);
    }

    #[test]
    fn paths_of_languages() {
        let name = |path: &str| find(path).map(Primitive::name);
        assert_eq!(
            name("std::sys::sync::mutex::futex::Mutex::lock_contended"),
            Some("Mutex::lock")
        );
        assert_eq!(
            name("std::sys::unix::locks::futex_mutex::Mutex::lock_contended"),
            Some("Mutex::lock")
        );
        assert_eq!(
            name("std::counting_semaphore<9223372036854775807l>::acquire()"),
            Some("std::counting_semaphore::acquire")
        );
        assert_eq!(
            name(
                "std::barrier<std::__empty_completion>::wait(std::barrier<std::__empty_completion>::arrival_token&&) const"
            ),
            Some("std::barrier::wait")
        );
        assert_eq!(
            name(
                "void std::__atomic_wait_address<int, std::latch::wait() const::{lambda()#1}>(int const*, bool)"
            ),
            Some("std::latch::wait")
        );
        assert_eq!(name("std::latch::try_wait() const"), None);
        assert_eq!(name("orders::Mutex::lock_contended"), None);
    }
}
