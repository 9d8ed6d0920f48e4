//! Explains differences between our frames and a peer's.
//!
//! The kinds were found by investigation, and each says who is right. Any other difference is
//! unexplained.

use std::fmt;

use unspool_image::Arch;
use unspool_unwind::{Cfa, Frame, ModuleMap, Place, Provenance, Row, Source, Stack, StackEnd};

use super::unwinders::Found;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// AArch64's framehop ends a stack where a rule restores 0 to x29. `clone`'s child clears x29
    /// and then calls the thread's function, so framehop omits the frame of that call. gdb shows
    /// it, as we do.
    NullFramePointer,
    /// glibc's CFI for AArch64's `_dl_runtime_resolve` ignores the 16 bytes that the PLT has
    /// pushed. So its CFA is 16 bytes below the caller's stack pointer, and its return address is
    /// at CFA + 8. An unwinder that follows it finds the right caller and then wrong frames. We
    /// know that a frame's words lie below its caller's stack pointer. At its first instruction we
    /// cannot know better either.
    ResolverCfa,
    /// There is no call frame information at the address, as in parts of `clone3` between its FDEs,
    /// and in `_init`. libunwind stops. framehop stops, or uses rbp, whatever that holds. We
    /// analyse the code.
    NoCfi,
    /// The same at the end of the stack: a new thread at its first instructions after `clone3`'s
    /// system call, whose return address is 0. libunwind tries the creator's registers as a frame.
    /// It continues with addresses in no module, once without end.
    AstrayWithoutCfi,
    /// `_start` has no caller. At its first instructions a peer takes the number of arguments on
    /// the stack for a return address. Or it takes the last value of x30, although CFI says that
    /// there is no caller.
    BehindStart,
    /// x86-64's framehop ends a stack where the CFA depends on neither rsp nor rbp, as on rbx in
    /// `_dl_runtime_resolve_xsavec`. Or it uses rbp instead, and finds arbitrary values.
    OtherRegister,
    /// x86-64's `vfork` has its return address in rdi. framehop takes the value that the child
    /// wrote to its old stack slot, and is right from the next frame on.
    InRegister,
    Unexplained,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::NullFramePointer => {
                "leaves the outermost frame out, into which x29 was 0 (we and gdb have it)"
            }
            Difference::ResolverCfa => {
                "goes by the wrong CFA of _dl_runtime_resolve, and astray behind its caller"
            }
            Difference::NoCfi => "stops or goes astray where there is no CFI (we analyse the code)",
            Difference::AstrayWithoutCfi => {
                "goes on in no module where there is no CFI (the stack ends there)"
            }
            Difference::BehindStart => "finds a caller of _start, which has none",
            Difference::OtherRegister => {
                "stops or goes astray where the CFA is by a register that it does not follow"
            }
            Difference::InRegister => {
                "takes an overwritten word of the stack for a return address that is in a register"
            }
            Difference::Unexplained => "unexplained",
        })
    }
}

/// The difference. `None` if the frames are the same.
pub(crate) fn judge(modules: &ModuleMap, ours: &Stack, peer: &Found) -> Option<Difference> {
    let pcs: Vec<u64> = ours.frames.iter().map(|frame| frame.pc).collect();
    if pcs == peer.pcs {
        return None;
    }
    if let Some([next]) = peer.pcs.strip_prefix(&pcs[..])
        && ours.end.is_complete()
        && (modules.find(*next).is_none()
            || ours
                .frames
                .last()
                .is_some_and(|last| is_root(modules, last)))
    {
        return Some(Difference::BehindStart);
    }
    if modules.arch() == Arch::X86_64 {
        if let Some(invented) = peer.pcs.strip_prefix(&pcs[..])
            && ours.end == StackEnd::NullReturn
            && ours
                .frames
                .last()
                .is_some_and(|last| !has_cfi(modules, last))
            && invented.iter().all(|&pc| modules.find(pc).is_none())
        {
            return Some(Difference::AstrayWithoutCfi);
        }
        let in_register = |row: Row<'_>| matches!(row.rule.ra, Place::Register(_));
        if let ([first, _, above @ ..], [_, _, others @ ..]) = (&ours.frames[..], &peer.pcs[..])
            && cfi(modules, first).is_some_and(in_register)
            && above
                .iter()
                .map(|frame| frame.pc)
                .eq(others.iter().copied())
        {
            return Some(Difference::InRegister);
        }
        let same = pcs.iter().zip(&peer.pcs).take_while(|(a, b)| a == b);
        let same = same.count();
        let next = ours.frames.get(same);
        let last = same.checked_sub(1).and_then(|at| ours.frames.get(at));
        let by_frame_pointer = !peer.all_registers && ours.end.is_complete();
        if by_frame_pointer && last.is_some_and(|last| is_by_another(modules, last)) {
            return Some(Difference::OtherRegister);
        }
        let stopped = same == peer.pcs.len() && ours.end.is_complete();
        let astray = by_frame_pointer && last.is_some_and(|last| !has_cfi(modules, last));
        let known = next.is_some_and(|frame| frame.provenance == Provenance::Code);
        return Some(if (stopped || astray) && known {
            Difference::NoCfi
        } else {
            Difference::Unexplained
        });
    }
    if let [callees @ .., last] = &ours.frames[..]
        && ours.end.is_complete()
        && peer.end.is_empty()
        && peer.pcs == pcs[..callees.len()]
        && last.fp == Some(0)
    {
        return Some(Difference::NullFramePointer);
    }
    let same = pcs.iter().zip(&peer.pcs).take_while(|(a, b)| a == b);
    let resolver = ours.frames[..same.count()].iter().any(|frame| {
        let Some((module, svma)) = modules.find(frame.address_for_lookup) else {
            return false;
        };
        let first = module.table.lookup(svma + 4).is_some_and(above);
        module.table.lookup(svma).is_some_and(above) && ours.end.is_complete() || first
    });
    Some(if resolver {
        Difference::ResolverCfa
    } else {
        Difference::Unexplained
    })
}

fn has_cfi(modules: &ModuleMap, frame: &Frame) -> bool {
    cfi(modules, frame).is_some()
}

/// Whether call frame information says that the frame has no caller.
fn is_root(modules: &ModuleMap, frame: &Frame) -> bool {
    cfi(modules, frame).is_some_and(|row| matches!(row.rule.ra, Place::Undefined))
}

/// Whether the CFA depends on neither rbp (6) nor rsp (7).
fn is_by_another(modules: &ModuleMap, frame: &Frame) -> bool {
    let row = cfi(modules, frame);
    row.is_some_and(|row| match row.rule.cfa {
        Cfa::Register { register, .. } => !matches!(register, 6 | 7),
        _ => false,
    })
}

fn cfi<'a>(modules: &'a ModuleMap, frame: &Frame) -> Option<Row<'a>> {
    let (module, svma) = modules.find(frame.address_for_lookup)?;
    module.table.lookup_from(Source::Cfi, svma)
}

/// Whether the return address is at or above the CFA, where no frame has it.
fn above(row: Row<'_>) -> bool {
    matches!(row.rule.ra, Place::AtCfa(0..))
}
