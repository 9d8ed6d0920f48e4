//! Generates collectors: code inside the program that records a hit without a stop. A jump in the
//! program's text leads to a collector, which jumps back (docs/decisions/0005).
//!
//! ```text
//! gate:   skips the red zone; goes to the copy if the collector is off
//! entry:  pushes flags and all general registers: the frame
//! body:   evaluates the condition (`condition.rs`), finds the thread (in a table that the stub
//!         fills, by fs_base), takes a slot, copies; rsp and rbp stay at the frame
//! leave:  pops everything
//! copy:   the displaced instructions, and a jump to the instruction after them
//! slow:   int3
//! ```
//! A collector calls nothing, makes no system call, and touches no vector register. If it cannot
//! record a hit, it leaves the hit to the stub by the `int3` at `slow`.
//!
//! For every instruction of the collector, [`Collector::back`] computes the registers that a thread
//! there would have without the collector. In the gate it uses what the gate has pushed, in the
//! prologue and the epilogue the number of pushed registers, and between them only the frame.

use super::super::fast::{
    ALARM, BEGIN, Base, DRAINED, END, FIRST_PAGE, GOLDEN, GONE, HALF, HASH_SHIFT, ID, LENGTHS,
    MASK, Noted, OWN, Order, POINTER, PROCESSOR, Position, SLOTS, STACK_END, STACK_POINTER, STATES,
    Sets, Site, Standing, Switch, TABLE, THREAD, TRIES,
};
use super::assembler::{Assembler, JA, JAE, JB, JE, JL, JMP, JNE, Label};
use super::condition;
use super::gate::{self, Gate};
use super::instruction::{Place, When, decode};
use super::user_regs::{
    self, COUNT, CS, ORIG_RAX, R14, RBX, RIP, RSP, SS, USER_CS, USER_DS, set_word, word,
};

/// The architecture's part of a slot: gs_base, segment selectors, the frame.
const GS_BASE: u8 = OWN;
const SELECTORS: u8 = OWN + 8;
const FRAME: usize = 128;
/// Offset of the blocks in a slot.
pub(crate) const BLOCKS: usize = FRAME + 8 * FRAME_WORDS;
/// Size of the head before a collector, in bytes. It begins with the word that enables it.
pub(crate) const HEAD: u64 = 16;
/// Bit mask of the register sets that [`sets`] returns.
pub(crate) const SETS: u8 = 1;

const FRAME_WORDS: usize = 16;
/// Size of the frame and the red zone, in bytes (System V ABI for AMD64, 3.2.2).
const DEPTH: u64 = 8 * FRAME_WORDS as u64 + RED_ZONE;
pub(super) const RED_ZONE: u64 = 128;
/// Index in the kernel's set of each word of the frame, lowest address first: r15 to r8, rdi, rsi,
/// rbp, rbx, rdx, rcx, rax, flags.
const FRAME_ORDER: [usize; FRAME_WORDS] = [0, 1, 2, 3, 6, 7, 8, 9, 14, 13, 4, 5, 12, 11, 10, 18];

/// Length of the jump to a collector, in bytes.
pub(crate) const JUMP: usize = 5;

/// Maximum distance from a jump to its collector, in bytes. Displaced instructions reach their
/// operands with a signed 32-bit displacement, and their own displacement takes part of that range.
pub(crate) const REACH: u64 = 1 << 30;

/// Whether a jump displaces exactly one instruction. Here it may displace several.
pub(crate) const IN_PLACE_OF_ONE: bool = false;

/// The generated code and its offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Collector {
    pub(crate) code: Vec<u8>,
    at: u64,
    displaced: usize,
    pool: u64,
    slots: u64,
    gate: Vec<Gate>,
    /// Offset of each instruction of the prologue and the epilogue.
    prologue: Vec<usize>,
    epilogue: Vec<usize>,
    /// Offsets from which a slot may be taken, and from which the hit is recorded.
    claim: usize,
    done: usize,
    alarm: usize,
    copy: usize,
    /// Offset of each copied instruction, and of its original from `at`.
    copied: Vec<(usize, usize)>,
    way_back: usize,
    slow: usize,
}

/// `HWCAP2_FSGSBASE`: programs may use `rdfsbase` (Linux `arch/x86/include/uapi/asm/hwcap2.h`).
const FSGSBASE: u64 = 1 << 1;

/// Whether the processor and the kernel support collectors: `rdfsbase` in programs, `rdtscp`, and
/// time stamp counters that run at a constant rate.
pub(crate) fn can_collect(capabilities: [u64; 2]) -> bool {
    let needed = ["constant_tsc", "nonstop_tsc", "rdtscp", "fsgsbase"];
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = information.lines().find(|line| line.starts_with("flags"));
    let has = |name: &&str| flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == *name));
    needed.iter().all(has) && capabilities[1] & FSGSBASE != 0
}

/// Number of bytes that a jump displaces: the shortest run of whole instructions that has room for
/// the jump. `None` if one of them cannot be moved.
pub(crate) fn displaceable(site: &Site) -> Option<usize> {
    let mut length = 0;
    while length < JUMP {
        let instruction = decode(site.code.get(length..)?)?;
        length += instruction.length;
        match instruction.place {
            Place::Free | Place::Operand { .. } => {}
            Place::Jump {
                when: When::Flags(_),
                ..
            } => {}
            // Only as the last one: execution does not continue after it.
            Place::Jump {
                when: When::Always, ..
            } if length >= JUMP => {}
            _ => return None,
        }
    }
    (length <= site.code.len()).then_some(length)
}

/// Whether a jump needs a veneer. Here it leads to the collector itself.
pub(crate) const HAS_VENEERS: bool = false;

pub(crate) fn veneer(_kind: usize, _start: u64) -> Option<Vec<u8>> {
    None
}

/// The address of the instruction that a word on a stack may point to.
pub(crate) fn instruction_at(word: u64) -> u64 {
    word
}

/// The jump at `at` to a collector.
pub(crate) fn jump(at: u64, _kind: usize, start: u64) -> Option<[u8; JUMP]> {
    let distance = start
        .wrapping_sub(at.wrapping_add(JUMP as u64))
        .cast_signed();
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// Generates a collector. `None` if its displaced instructions cannot reach their operands from it.
pub(crate) fn generate(order: &Order) -> Option<Collector> {
    let mut a = Assembler::default();
    let mut prologue = Vec::new();
    let gate = gate::put(&mut a);
    // pushfq; push rax, rcx, rdx, rbx, rbp, rsi, rdi, r8 to r15
    let pushes: [&[u8]; FRAME_WORDS] = [
        &[0x9c],
        &[0x50],
        &[0x51],
        &[0x52],
        &[0x53],
        &[0x55],
        &[0x56],
        &[0x57],
        &[0x41, 0x50],
        &[0x41, 0x51],
        &[0x41, 0x52],
        &[0x41, 0x53],
        &[0x41, 0x54],
        &[0x41, 0x55],
        &[0x41, 0x56],
        &[0x41, 0x57],
    ];
    for push in pushes {
        prologue.push(a.code.len());
        a.put(push);
    }
    a.put(&[0x48, 0x89, 0xe5]); // mov rbp, rsp
    a.put(&[0xfc]); // cld
    if let Some(code) = order.condition {
        condition::check(&mut a, code);
    }
    a.put_64(&[0x49, 0xbc], order.pool); // mov r12, pool
    a.put_32(&[0x41, 0x83, 0xbc, 0x24], GONE as u32); // cmp dword [r12 + GONE], 0
    a.put(&[0]);
    a.jump(JNE, Label::Leave);
    find_thread(&mut a, order);
    let claim = a.code.len();
    take_slot(&mut a, order);
    note(&mut a, order);
    // rdtsc; shl rdx, 32; or rax, rdx; mov [r15 + END], rax
    a.put(&[0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0]);
    a.put(&[0x49, 0x89, 0x47, END]);
    a.put(&[0x48, 0x8d, 0x44, 0x1b, 0x01]); // lea rax, [rbx + rbx + 1]
    a.put(&[0x49, 0x89, 0x06]); // mov [r14], rax
    let done = a.code.len();
    a.put(&[0x49, 0x2b, 0x5c, 0x24, DRAINED as u8]); // sub rbx, [r12 + DRAINED]
    a.put(&[0x49, 0x3b, 0x5c, 0x24, HALF as u8]); // cmp rbx, [r12 + HALF]
    a.jump(JL, Label::Leave);
    a.put(&[0x41, 0x83, 0x7c, 0x24, ALARM as u8, 0]); // cmp dword [r12 + ALARM], 0
    a.jump(JNE, Label::Leave);
    a.put_32(&[0xb8], 1); // mov eax, 1
    a.put(&[0x41, 0x87, 0x44, 0x24, ALARM as u8]); // xchg [r12 + ALARM], eax
    a.put(&[0x85, 0xc0]); // test eax, eax
    a.jump(JNE, Label::Leave);
    a.put(&[0xcc]);
    let alarm = a.code.len();
    a.here(Label::Leave);
    let mut epilogue = Vec::new();
    // pop r15 to r8, rdi, rsi, rbp, rbx, rdx, rcx, rax; popfq; lea rsp, [rsp + 128]
    let pops: [&[u8]; 17] = [
        &[0x41, 0x5f],
        &[0x41, 0x5e],
        &[0x41, 0x5d],
        &[0x41, 0x5c],
        &[0x41, 0x5b],
        &[0x41, 0x5a],
        &[0x41, 0x59],
        &[0x41, 0x58],
        &[0x5f],
        &[0x5e],
        &[0x5d],
        &[0x5b],
        &[0x5a],
        &[0x59],
        &[0x58],
        &[0x9d],
        &[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0],
    ];
    for pop in pops {
        epilogue.push(a.code.len());
        a.put(pop);
    }
    let copy = a.code.len();
    a.here(Label::Copy);
    let copied = displace(&mut a, order)?;
    let way_back = a.code.len();
    let next = order.at.wrapping_add(order.displaced.len() as u64);
    a.put(&[0xff, 0x25, 0, 0, 0, 0]);
    a.put(&next.to_le_bytes());
    a.here(Label::Slow);
    a.put(&[0xcc]);
    let slow = a.code.len();
    a.jump(JMP, Label::Leave);
    a.link()?;
    Some(Collector {
        code: a.code,
        at: order.at,
        displaced: order.displaced.len(),
        pool: order.pool,
        slots: order.slots,
        gate,
        prologue,
        epilogue,
        claim,
        done,
        alarm,
        copy,
        copied,
        way_back,
        slow,
    })
}

/// Loads r9 with the thread's id, r11 with the end of its stack, rdi with fs_base, and r8 with the
/// stack pointer.
fn find_thread(a: &mut Assembler, order: &Order) {
    a.put(&[0xf3, 0x48, 0x0f, 0xae, 0xc7]); // rdfsbase rdi
    a.put_64(&[0x48, 0xb9], GOLDEN); // mov rcx, GOLDEN
    a.put(&[0x48, 0x0f, 0xaf, 0xcf]); // imul rcx, rdi
    a.put(&[0x48, 0xc1, 0xe9, HASH_SHIFT]); // shr rcx, 54
    a.put(&[0xc1, 0xe1, 5]); // shl ecx, 5
    a.put_32(&[0x49, 0x8d, 0xb4, 0x0c], TABLE as u32); // lea rsi, [r12 + rcx + TABLE]
    a.put(&[0x48, 0x39, 0x3e]); // cmp [rsi], rdi
    a.jump(JE, Label::Known);
    a.put(&[0x48, 0x83, 0xf6, 0x20]); // xor rsi, 32
    a.put(&[0x48, 0x39, 0x3e]);
    a.jump(JNE, Label::Slow);
    a.here(Label::Known);
    a.put(&[0x4c, 0x8b, 0x4e, 8]); // mov r9, [rsi + 8]
    a.put(&[0x4c, 0x8b, 0x56, 16]); // mov r10, [rsi + 16]
    a.put(&[0x4c, 0x8b, 0x5e, 24]); // mov r11, [rsi + 24]
    // Check again that the entry is this thread's: the stub clears its key before it reuses it.
    a.put(&[0x48, 0x39, 0x3e]);
    a.jump(JNE, Label::Slow);
    a.put_32(&[0x4c, 0x8d, 0x85], DEPTH as u32); // lea r8, [rbp + DEPTH]
    a.put(&[0x4d, 0x39, 0xd0]); // cmp r8, r10
    a.jump(JB, Label::Slow);
    a.put(&[0x4d, 0x39, 0xd8]); // cmp r8, r11
    a.jump(JAE, Label::Slow);
    if let Some(most) = order.stack_left {
        a.put(&[0x4c, 0x89, 0xd8]); // mov rax, r11
        a.put(&[0x4c, 0x29, 0xc0]); // sub rax, r8
        a.put_32(&[0x48, 0x3d], most); // cmp rax, most
        a.jump(JA, Label::Slow);
    }
}

/// Loads rbx with the ticket, r14 with the address of the slot's state, and r15 with the slot's.
fn take_slot(a: &mut Assembler, order: &Order) {
    a.put_32(&[0x41, 0xbd], TRIES); // mov r13d, 8
    a.here(Label::Again);
    a.put_32(&[0xbb], 1); // mov ebx, 1
    a.put(&[0xf0, 0x49, 0x0f, 0xc1, 0x1c, 0x24]); // lock xadd [r12], rbx
    a.put(&[0x89, 0xd8]); // mov eax, ebx
    a.put(&[0x41, 0x23, 0x44, 0x24, MASK as u8]); // and eax, [r12 + MASK]
    a.put_32(&[0x4d, 0x8d, 0xb4, 0xc4], STATES as u32); // lea r14, [r12 + rax * 8 + STATES]
    a.put(&[0x41, 0x89, 0xc7]); // mov r15d, eax
    a.put(&[0x48, 0x8d, 0x0c, 0x1b]); // lea rcx, [rbx + rbx]
    a.put(&[0x31, 0xc0]); // xor eax, eax
    a.put(&[0xf0, 0x49, 0x0f, 0xb1, 0x0e]); // lock cmpxchg [r14], rcx
    a.jump(JE, Label::Got);
    a.put(&[0x41, 0xff, 0xcd]); // dec r13d
    a.jump(JNE, Label::Again);
    a.jump(JMP, Label::Slow);
    a.here(Label::Got);
    a.put_32(&[0x4d, 0x69, 0xff], order.slot_size as u32); // imul r15, r15, slot_size
    a.put_64(&[0x48, 0xb8], order.pool.wrapping_add(SLOTS)); // mov rax, slots
    a.put(&[0x49, 0x01, 0xc7]); // add r15, rax
}

fn note(a: &mut Assembler, order: &Order) {
    a.put_32(&[0x49, 0xc7, 0x47, ID], order.id); // mov qword [r15 + ID], id
    a.put(&[0x4d, 0x89, 0x4f, THREAD]); // mov [r15 + THREAD], r9
    a.put(&[0x49, 0x89, 0x7f, POINTER]); // mov [r15 + POINTER], rdi
    a.put(&[0x4d, 0x89, 0x5f, STACK_END]); // mov [r15 + STACK_END], r11
    a.put(&[0x4d, 0x89, 0x47, STACK_POINTER]); // mov [r15 + STACK_POINTER], r8
    a.put(&[0xf3, 0x48, 0x0f, 0xae, 0xc8]); // rdgsbase rax
    a.put(&[0x49, 0x89, 0x47, GS_BASE]); // mov [r15 + GS_BASE], rax
    for (index, modrm) in [0xd8, 0xc0, 0xe0, 0xe8].into_iter().enumerate() {
        // mov eax, ds, es, fs, gs; mov [r15 + SELECTORS], eax
        a.put(&[0x8c, modrm, 0x41, 0x89, 0x47, SELECTORS + 4 * index as u8]);
    }
    a.put(&[0x0f, 0x01, 0xf9]); // rdtscp
    // Like the kernel's processor number: the bits above are the node.
    a.put_32(&[0x81, 0xe1], 0xfff); // and ecx, 0xfff
    a.put(&[0x41, 0x89, 0x4f, PROCESSOR]); // mov [r15 + PROCESSOR], ecx
    a.put(&[0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0]); // shl rdx, 32; or rax, rdx
    a.put(&[0x49, 0x89, 0x47, BEGIN]); // mov [r15 + BEGIN], rax
    a.put(&[0x48, 0x89, 0xee]); // mov rsi, rbp
    a.put_32(&[0x49, 0x8d, 0xbf], FRAME as u32); // lea rdi, [r15 + FRAME]
    a.put_32(&[0xb9], FRAME_WORDS as u32); // mov ecx, 16
    a.put(&[0xf3, 0x48, 0xa5]); // rep movsq
    let mut offset = BLOCKS as u64;
    for (index, block) in order.blocks.iter().enumerate() {
        match block.base {
            Base::Register(RSP_NUMBER) => a.put(&[0x4c, 0x89, 0xc6]), // mov rsi, r8
            Base::Register(number) => {
                let index = frame_index(number).unwrap_or(0);
                a.put(&[0x48, 0x8b, 0x75, 8 * index as u8]); // mov rsi, [rbp + register]
            }
            Base::Absolute => a.put_64(&[0x48, 0xbe], 0), // mov rsi, 0
        }
        a.put_64(&[0x48, 0xb8], block.offset); // mov rax, offset
        a.put(&[0x48, 0x01, 0xc6]); // add rsi, rax
        if block.is_stack() {
            a.put(&[0x4c, 0x89, 0xd9]); // mov rcx, r11
            a.put(&[0x48, 0x29, 0xf1]); // sub rcx, rsi
            a.put(&[0x73, 2, 0x31, 0xc9]); // jae +2; xor ecx, ecx
            a.put_32(&[0xb8], block.length); // mov eax, length
            a.put(&[0x48, 0x39, 0xc1]); // cmp rcx, rax
            a.put(&[0x48, 0x0f, 0x47, 0xc8]); // cmova rcx, rax
        } else {
            a.put_32(&[0xb9], block.length); // mov ecx, length
            a.put_32(&[0x48, 0x81, 0xfe], FIRST_PAGE); // cmp rsi, 4096
            a.put(&[0x73, 2, 0x31, 0xc9]);
        }
        a.put(&[0x41, 0x89, 0x4f, LENGTHS + 4 * index as u8]); // mov [r15 + LENGTHS], ecx
        a.put_32(&[0x49, 0x8d, 0xbf], offset as u32); // lea rdi, [r15 + offset]
        a.put(&[0xf3, 0xa4]); // rep movsb
        offset += block.room();
    }
}

/// Adapts the displaced instructions to their new place. Returns each offset here and there.
fn displace(a: &mut Assembler, order: &Order) -> Option<Vec<(usize, usize)>> {
    let mut copied = Vec::new();
    let mut done = 0;
    while done < order.displaced.len() {
        let code = &order.displaced[done..];
        let instruction = decode(code)?;
        let mut copy = code[..instruction.length].to_vec();
        if let Place::Operand { displacement } = instruction.place {
            let from = order.at.wrapping_add(done as u64);
            let to = order.start.wrapping_add(a.code.len() as u64);
            let field = copy.get_mut(displacement..displacement + 4)?;
            let stated = i32::from_le_bytes(<[u8; 4]>::try_from(&*field).ok()?);
            let moved = i64::from(stated).checked_add(from.wrapping_sub(to).cast_signed())?;
            field.copy_from_slice(&i32::try_from(moved).ok()?.to_le_bytes());
        }
        if let Place::Jump { when, offset } = instruction.place {
            copy = match when {
                When::Always => vec![0xe9],
                // 0f 1000tttn (SDM vol. 2, B.1.4.7)
                When::Flags(condition) => vec![0x0f, 0x80 | condition],
                _ => return None,
            };
            let behind = done + instruction.length;
            let target = order.at.wrapping_add(behind as u64);
            let target = target.wrapping_add_signed(offset.into());
            let here = order
                .start
                .wrapping_add((a.code.len() + copy.len() + 4) as u64);
            let distance = i32::try_from(target.wrapping_sub(here).cast_signed()).ok()?;
            copy.extend(distance.to_le_bytes());
        }
        copied.push((a.code.len(), done));
        a.put(&copy);
        done += instruction.length;
    }
    Some(copied)
}

const RSP_NUMBER: usize = 7;

/// Index in the frame of the register with this number in the `g` packet.
pub(super) fn frame_index(number: usize) -> Option<usize> {
    match number {
        0 => Some(14),
        1 => Some(11),
        2 => Some(13),
        3 => Some(12),
        4 => Some(9),
        5 => Some(8),
        6 => Some(10),
        8..=15 => Some(15 - number),
        _ => None,
    }
}

/// Whether a block can have this register as its base.
pub(crate) fn is_base(number: usize) -> bool {
    number == RSP_NUMBER || frame_index(number).is_some()
}

impl Collector {
    /// The word before the code.
    pub(crate) fn switch(&self) -> Switch {
        Switch {
            on: 1_u32.to_le_bytes(),
            off: [0; 4],
        }
    }

    /// Offset at which a thread goes on that has trapped at `offset` to wake the stub. `None` if it
    /// has not.
    pub(crate) fn after_alarm(&self, offset: u64) -> Option<u64> {
        (offset == self.alarm as u64).then_some(offset)
    }

    /// Offset of the copy of the displaced instructions.
    pub(crate) fn copy(&self) -> u64 {
        self.copy as u64
    }

    /// Changes the registers of a thread at `offset` into those that it would have without the
    /// collector. `None` if its frame cannot be read.
    pub(crate) fn back(
        &self,
        offset: u64,
        general: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<Position> {
        let offset = usize::try_from(offset).ok()?;
        let mine = (self.claim..self.done)
            .contains(&offset)
            .then(|| (word(general, R14), word(general, RBX)))
            .map(|(state, ticket)| (state, ticket.wrapping_mul(2).to_le_bytes().to_vec()));
        let sp = word(general, RSP);
        let (standing, pc) = if let Some(gate) = self.gate.iter().find(|g| g.offset == offset) {
            (gate.back(general, read)?, self.at)
        } else if let Some(pushed) = self.prologue.iter().position(|o| *o == offset) {
            let depth = RED_ZONE + 8 * pushed as u64;
            set_word(general, RSP, sp.wrapping_add(depth));
            (Standing::Before, self.at)
        } else if let Some(popped) = self.epilogue.iter().position(|o| *o == offset) {
            let popped = popped.min(FRAME_WORDS);
            restore(general, sp, popped, read)?;
            let alarmed = if offset == self.alarm {
                Standing::Alarmed
            } else {
                Standing::Dealt
            };
            (alarmed, self.at)
        } else if offset >= self.copy && offset < self.slow - 1 {
            let inside = self.copied.iter().find(|(here, _)| *here == offset);
            match inside {
                Some((_, 0)) => (Standing::Dealt, self.at),
                Some((_, there)) => (Standing::Inside, self.at.wrapping_add(*there as u64)),
                None if offset == self.way_back => {
                    (Standing::After, self.at.wrapping_add(self.displaced as u64))
                }
                None => return None,
            }
        } else {
            restore(general, sp, 0, read)?;
            let standing = if offset == self.slow {
                Standing::Slow
            } else if offset < self.done || offset + 1 == self.slow {
                Standing::Before
            } else {
                Standing::Dealt
            };
            (standing, self.at)
        };
        set_word(general, RIP, pc);
        // Not in a system call, regardless of rax.
        set_word(general, ORIG_RAX, u64::MAX);
        Some(Position::claiming(
            standing,
            (self.pool, self.slots),
            mine,
            read,
        ))
    }
}

/// Restores the registers that are still in the frame.
fn restore(
    general: &mut [u8],
    sp: u64,
    popped: usize,
    read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> Option<()> {
    let mut frame = [0; 8 * FRAME_WORDS];
    let rest = &mut frame[8 * popped..];
    if !rest.is_empty() && !read(sp, rest) {
        return None;
    }
    for (index, place) in FRAME_ORDER.into_iter().enumerate().skip(popped) {
        set_word(general, place, word(&frame, index));
    }
    let left = 8 * (FRAME_WORDS - popped) as u64 + RED_ZONE;
    set_word(general, RSP, sp.wrapping_add(left));
    Some(())
}

/// Reads the general registers at the jump.
pub(crate) fn sets(noted: &Noted, at: u64, into: &mut Sets) {
    let general = into.get_mut(0, 8 * COUNT);
    let frame = noted.0.get(FRAME..).unwrap_or_default();
    for (index, place) in FRAME_ORDER.into_iter().enumerate() {
        set_word(general, place, word(frame, index));
    }
    let others = [
        (ORIG_RAX, u64::MAX),
        (RIP, at),
        (CS, USER_CS),
        (RSP, noted.stack_pointer()),
        (SS, USER_DS),
        (user_regs::FS_BASE, noted.at(POINTER)),
        (user_regs::GS_BASE, noted.at(GS_BASE)),
    ];
    for (place, value) in others {
        set_word(general, place, value);
    }
    for index in 0..4 {
        let selector = noted.half(SELECTORS + 4 * index);
        set_word(general, 23 + usize::from(index), selector.into());
    }
}
