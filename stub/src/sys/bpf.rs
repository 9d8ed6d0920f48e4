//! Programs that the kernel runs at its tracepoints, and their maps (bpf(2)).
//!
//! Only what a filter of events needs. A program is a list of instructions, because the stub cannot
//! bring a compiler.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Commands of the system call.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;

/// Kinds of maps, `BPF_MAP_TYPE_*`.
const PERF_EVENT_ARRAY: u32 = 4;
const LRU_HASH: u32 = 9;
/// The kind of a program that runs at a tracepoint, `BPF_PROG_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 5;

/// `PERF_EVENT_IOC_SET_BPF`: `_IOW('$', 8, __u32)`.
const SET_BPF: libc::c_ulong = 0x4004_2408;

/// The kernel lets only programs under a licence that is compatible with the GPL write samples, as
/// the MIT licence is.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";

/// Size of keys and values, in bytes.
const WORD: u32 = 4;

/// A map from words to words.
pub(crate) struct Map(OwnedFd);

impl Map {
    /// A map that drops its least recently used keys when it is full.
    pub(crate) fn words(entries: u32) -> Result<Map, Errno> {
        create(LRU_HASH, entries).map(Map)
    }

    fn put(&self, key: u32, value: u32) -> Result<(), Errno> {
        #[repr(C)]
        struct Update {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let update = Update {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: address(&key),
            value: address(&value),
            flags: 0,
        };
        // SAFETY: the kernel reads the structure and two words, which live until it returns.
        unsafe { call(MAP_UPDATE, &update) }.map(drop)
    }
}

/// The events into whose rings a program can write, one for each processor.
pub(crate) struct Outputs(Map);

impl Outputs {
    pub(crate) fn new(processors: u32) -> Result<Outputs, Errno> {
        Ok(Outputs(Map(create(PERF_EVENT_ARRAY, processors)?)))
    }

    /// Adds the event of a processor.
    pub(crate) fn put(&self, processor: u32, event: &OwnedFd) -> Result<(), Errno> {
        self.0.put(processor, event.as_raw_fd() as u32)
    }
}

/// One instruction, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A function of the kernel that programs can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    /// `bpf_map_lookup_elem`
    Lookup = 1,
    /// `bpf_map_update_elem`
    Update = 2,
    /// `bpf_get_current_pid_tgid`
    CurrentIds = 14,
    /// `bpf_perf_event_output`
    Output = 25,
}

/// Registers are numbers. The arguments of calls are in 1 to 5, results in 0; calls keep 6 to 9.
impl Instruction {
    const fn new(code: u8, [to, from]: [u8; 2], offset: i16, immediate: i32) -> Instruction {
        Instruction {
            code,
            registers: to | from << 4,
            offset,
            immediate,
        }
    }

    pub(crate) const fn copy(to: u8, from: u8) -> Instruction {
        Instruction::new(0xbf, [to, from], 0, 0)
    }

    /// Sets the low half of a register, and clears the high half.
    pub(crate) const fn set(to: u8, value: i32) -> Instruction {
        Instruction::new(0xb4, [to, 0], 0, value)
    }

    pub(crate) const fn add(to: u8, value: i32) -> Instruction {
        Instruction::new(0x07, [to, 0], 0, value)
    }

    pub(crate) const fn shift_right(to: u8, bits: i32) -> Instruction {
        Instruction::new(0x77, [to, 0], 0, bits)
    }

    pub(crate) const fn load(to: u8, address: u8, offset: i16) -> Instruction {
        Instruction::new(0x61, [to, address], offset, 0)
    }

    pub(crate) const fn store(address: u8, offset: i16, from: u8) -> Instruction {
        Instruction::new(0x63, [address, from], offset, 0)
    }

    pub(crate) const fn call(helper: Helper) -> Instruction {
        Instruction::new(0x85, [0, 0], 0, helper as i32)
    }

    /// Skips instructions if a register equals a number.
    pub(crate) const fn skip_if_equal(register: u8, value: i32, skipped: i16) -> Instruction {
        Instruction::new(0x15, [register, 0], skipped, value)
    }

    /// Skips instructions if a register has one of these bits.
    pub(crate) const fn skip_if_set(register: u8, bits: i32, skipped: i16) -> Instruction {
        Instruction::new(0x45, [register, 0], skipped, bits)
    }

    pub(crate) const fn exit() -> Instruction {
        Instruction::new(0x95, [0, 0], 0, 0)
    }

    /// The two instructions that load a map's address.
    pub(crate) fn load_map(to: u8, map: &Map) -> [Instruction; 2] {
        const IS_MAP: u8 = 1;
        let number = map.0.as_raw_fd();
        [
            Instruction::new(0x18, [to, IS_MAP], 0, number),
            Instruction::new(0, [0, 0], 0, 0),
        ]
    }

    /// The two instructions that load the address of a map of outputs.
    pub(crate) fn load_outputs(to: u8, outputs: &Outputs) -> [Instruction; 2] {
        Instruction::load_map(to, &outputs.0)
    }
}

/// A program and its maps. The kernel runs it as long as this value lives.
pub(crate) struct Program {
    _event: OwnedFd,
    _program: OwnedFd,
    _map: Map,
    _outputs: Outputs,
}

impl Program {
    /// Lets the kernel run a program at each hit of the tracepoint of `event`.
    pub(crate) fn run(
        event: OwnedFd,
        instructions: &[Instruction],
        map: Map,
        outputs: Outputs,
    ) -> Result<Program, Errno> {
        let program = load(instructions)?;
        // SAFETY: the request takes a descriptor and touches none of our memory.
        let done = unsafe {
            libc::ioctl(
                event.as_raw_fd(),
                SET_BPF as _,
                program.as_raw_fd() as libc::c_ulong,
            )
        };
        Errno::result(done)?;
        Ok(Program {
            _event: event,
            _program: program,
            _map: map,
            _outputs: outputs,
        })
    }
}

fn load(instructions: &[Instruction]) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        licence: u64,
    }
    let load = Load {
        kind: TRACEPOINT,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as usize as u64,
        licence: LICENCE.as_ptr() as usize as u64,
    };
    // SAFETY: the kernel reads the structure, the instructions and the NUL-terminated licence.
    unsafe { descriptor(PROGRAM_LOAD, &load) }
}

fn create(kind: u32, entries: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel reads four words: the kind, the sizes of keys and of values, the entries.
    unsafe { descriptor(MAP_CREATE, &[kind, WORD, WORD, entries]) }
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as usize as u64
}

/// # Safety
///
/// The command must create a descriptor. See also [`call`].
unsafe fn descriptor<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's duty.
    let number = unsafe { call(command, attributes) }?;
    // SAFETY: the system call has just created the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// # Safety
///
/// `attributes` must be the begin of the kernel's structure for this command, and all addresses in
/// it must be valid. The kernel takes the rest as zero.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> Result<libc::c_long, Errno> {
    // SAFETY: the kernel reads the structure, whose size it gets. The rest is the caller's duty.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>() as libc::c_uint,
        )
    };
    Errno::result(result)
}
