//! One function: control flow followed from its entry, the state computed for every instruction.
//!
//! Three passes. Discovery decodes everything reachable and finds where paths join. A fix point over the
//! blocks meets the states of joining paths, keeping only what all agree on. A last pass over
//! the blocks reports the state at every instruction.
//!
//! Calls that do not return need no list of names: their fall-through runs into another block, data or the next
//! function. A state remembers the last call on its path ([`State::after`]); where such a path meets one that
//! disagrees on the stack pointer, runs off the function, returns with the stack pointer elsewhere, or
//! pushes a link register that the call has overwritten (the next function's prologue), the call is
//! taken not to return and the function is analysed again without its fall-through.
//!
//! Jumps that cannot be resolved lead to the code between the function's reached parts that nothing else leads to:
//! to each such orphan with the state that all of these jumps agree on.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};

use super::effect::{Effect, Flow, Instruction, Table, TableForm, Target};
use super::state::{State, Value};

/// No function of more bytes is analysed.
const LARGEST: u64 = 4 << 20;
/// No jump table has more entries.
const MOST_ENTRIES: u32 = 4096;
const ALWAYS: u8 = 14;
const NONE: u32 = u32::MAX;

/// What the engine needs to know of the image.
pub(crate) trait Text {
    /// The instruction at `svma`.
    fn decode(&self, svma: u64, thumb: bool) -> Option<Instruction>;
    /// A word of the image.
    fn word(&self, svma: u64) -> Option<u32>;
    /// Known to be data.
    fn is_data(&self, svma: u64) -> bool;
    /// Known not to return.
    fn never_returns(&self, target: Target) -> bool;
}

/// What the analysis of one function gives.
#[derive(Debug, Default)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// One past the last address it may have.
    pub end: u64,
    /// T32.
    pub thumb: bool,
    /// Every reached instruction's address, length and state before it, in order of address.
    pub instructions: Vec<(u64, u8, State)>,
    /// Targets of calls.
    pub calls: Vec<Target>,
    /// Jumps out of the function and the state there.
    pub exits: Vec<(Target, State)>,
    /// Words that are loaded from the text.
    pub literals: Vec<u64>,
    /// Something in it could not be followed or is not code.
    pub doubtful: bool,
    /// No path returns or leaves.
    pub endless: bool,
    /// Where it returns or leaves, the stack pointer is where it was at the start.
    pub clean: bool,
}

/// Follow the function at `start`; it ends before `end`.
///
/// `whole`: `end` is where the next function starts, so that code in between belongs to this one.
pub(crate) fn follow(
    text: &dyn Text,
    start: Target,
    end: u64,
    entry: State,
    whole: bool,
) -> Function {
    let mut silent: HashSet<u32> = HashSet::new();
    let mut orphans: BTreeSet<u32> = BTreeSet::new();
    let end = end.min(start.svma.saturating_add(LARGEST));
    for round in 0.. {
        let mut pass = Pass::new(text, start, end, &silent);
        pass.orphans = orphans.iter().copied().collect();
        pass.discover();
        let found = pass.fix(entry.clone());
        let fresh: Vec<u32> = found
            .into_iter()
            .filter(|call| !silent.contains(call))
            .collect();
        if whole
            && round < 80
            && fresh.is_empty()
            && let Some(orphan) = pass.orphan()
            && orphans.len() < 64
        {
            orphans.insert(orphan);
            continue;
        }
        if fresh.is_empty() || round >= 80 {
            return pass.report(fresh.is_empty());
        }
        silent.extend(fresh);
    }
    unreachable!("the loop above returns")
}

struct Pass<'t> {
    text: &'t dyn Text,
    start: Target,
    end: u64,
    silent: &'t HashSet<u32>,
    decoded: Vec<Instruction>,
    /// By halfword from the start: index in `decoded`.
    index: Vec<u32>,
    /// Words that are loaded as data.
    literals: HashSet<u64>,
    leaders: BTreeSet<u32>,
    tables: Vec<(u32, Vec<u32>)>,
    states: Vec<Option<State>>,
    /// Where unresolved jumps are taken to lead.
    orphans: Vec<u32>,
    doubtful: bool,
    unclean: Cell<bool>,
}

impl<'t> Pass<'t> {
    fn new(text: &'t dyn Text, start: Target, end: u64, silent: &'t HashSet<u32>) -> Self {
        let halves = (end.saturating_sub(start.svma) / 2) as usize;
        Pass {
            text,
            start,
            end,
            silent,
            decoded: Vec::new(),
            index: vec![NONE; halves],
            literals: HashSet::new(),
            leaders: BTreeSet::new(),
            tables: Vec::new(),
            states: Vec::new(),
            orphans: Vec::new(),
            doubtful: false,
            unclean: Cell::new(false),
        }
    }

    fn svma(&self, half: u32) -> u64 {
        self.start.svma + 2 * u64::from(half)
    }

    /// Position of an address of this function.
    fn half(&self, target: Target) -> Option<u32> {
        let inside =
            (self.start.svma..self.end).contains(&target.svma) && target.thumb == self.start.thumb;
        inside.then(|| ((target.svma - self.start.svma) / 2) as u32)
    }

    fn at(&self, half: u32) -> Option<&Instruction> {
        let index = *self.index.get(half as usize)?;
        self.decoded.get(index as usize)
    }

    fn discover(&mut self) {
        let mut open = vec![0u32];
        open.extend(&self.orphans);
        self.leaders.extend(&open);
        while let Some(mut half) = open.pop() {
            // Conditions of the instructions that an IT instruction governs, next first.
            let mut governed: Vec<u8> = Vec::new();
            let mut link_set = false;
            while self.index.get(half as usize) == Some(&NONE) {
                let svma = self.svma(half);
                let decoded = if self.text.is_data(svma) || self.literals.contains(&(svma & !3)) {
                    None
                } else {
                    self.text.decode(svma, self.start.thumb)
                };
                let Some(mut instruction) = decoded.filter(|i| svma + u64::from(i.len) <= self.end)
                else {
                    break;
                };
                if let Some(condition) = governed.pop() {
                    instruction.condition = condition;
                } else if instruction.it != 0 {
                    governed = it_conditions(instruction.it);
                }
                if link_set && matches!(instruction.flow, Flow::Indirect) {
                    // mov lr, pc; bx register
                    instruction.flow = Flow::Call(None);
                }
                if instruction.flow == Flow::Indirect
                    && let Some(table) = self.offset_table(half)
                {
                    instruction.flow = Flow::Table(table);
                }
                link_set = matches!(instruction.effects().first(), Some(Effect::Constant { to: 14, value }) if u64::from(*value) == svma + 8);
                let next = half + u32::from(instruction.len) / 2;
                let conditional = instruction.condition != ALWAYS;
                self.index[half as usize] = self.decoded.len() as u32;
                for effect in instruction.effects() {
                    if let Effect::Literal { svma, .. } = effect {
                        self.literals.insert(*svma & !3);
                    }
                }
                self.decoded.push(instruction);
                let mut targets = Vec::new();
                let onward = match instruction.flow {
                    Flow::Next => true,
                    Flow::Jump(target) => {
                        targets.extend(self.half(target));
                        conditional
                    }
                    Flow::IfZero { target, .. } => {
                        targets.extend(self.half(target));
                        true
                    }
                    Flow::Call(target) => {
                        conditional
                            || !(self.silent.contains(&half)
                                || target.is_some_and(|target| self.text.never_returns(target)))
                    }
                    Flow::Table(_) => {
                        targets = self.table_targets(half, &instruction);
                        if targets.is_empty() {
                            targets.clone_from(&self.orphans);
                        }
                        self.tables.push((half, targets.clone()));
                        conditional
                    }
                    Flow::Indirect => {
                        self.tables.push((half, self.orphans.clone()));
                        conditional
                    }
                    Flow::Return | Flow::Trap => conditional,
                };
                let joins = conditional && !matches!(instruction.flow, Flow::Next | Flow::Call(_))
                    || matches!(instruction.flow, Flow::IfZero { .. });
                for target in targets {
                    if self.leaders.insert(target) {
                        open.push(target);
                    }
                }
                if joins && governed.is_empty() {
                    self.leaders.insert(next);
                }
                if !onward {
                    break;
                }
                half = next;
            }
        }
    }

    /// The table of offsets that leads to the indirect jump at `half`, if the instructions before it are
    /// `adr table; ldr r, [table, index, lsl #2]; add r, table`.
    fn offset_table(&self, half: u32) -> Option<Table> {
        let mut loaded = None;
        let mut added = false;
        for back in (half.saturating_sub(16)..half).rev() {
            let Some(earlier) = self.at(back) else {
                continue;
            };
            match loaded {
                None => {
                    added |= matches!(
                        earlier.effects().first(),
                        Some(Effect::AddRegister {
                            subtract: false,
                            ..
                        })
                    );
                    loaded = earlier.indexed;
                }
                Some((_, base, index)) => {
                    for effect in earlier.effects() {
                        if let Effect::Constant { to, value } = effect
                            && *to == base
                        {
                            return added.then_some(Table {
                                svma: Some(u64::from(*value)),
                                base,
                                index,
                                form: TableForm::Offsets,
                            });
                        }
                    }
                }
            }
        }
        None
    }

    /// Where a jump table leads. Its length is known from the comparison before it, else it ends where its
    /// nearest target starts.
    fn table_targets(&self, half: u32, instruction: &Instruction) -> Vec<u32> {
        let Flow::Table(table) = instruction.flow else {
            return Vec::new();
        };
        let mut bound = None;
        let mut base = table.svma;
        let mut back = half;
        let mut seen = 0;
        while back > 0 && seen < 12 && (bound.is_none() || base.is_none()) {
            back -= 1;
            let Some(earlier) = self.at(back) else {
                continue;
            };
            seen += 1;
            if bound.is_none()
                && let Some((register, value)) = earlier.compares
            {
                // The index may have been moved to another register since; the nearest comparison is the range check.
                let _ = register;
                bound = Some(value);
            }
            for effect in earlier.effects() {
                if let Effect::Constant { to, value } = effect
                    && *to == table.base
                    && base.is_none()
                {
                    base = Some(u64::from(*value));
                }
            }
        }
        let Some(base) = base else { return Vec::new() };
        let here = self.svma(half);
        let mut limit = self.end;
        let mut targets = BTreeSet::new();
        for entry in 0..bound.map_or(MOST_ENTRIES, |bound| {
            bound.saturating_add(1).min(MOST_ENTRIES)
        }) {
            let (at, size) = match table.form {
                TableForm::Bytes => (base + u64::from(entry), 1),
                TableForm::Halfwords => (base + 2 * u64::from(entry), 2),
                TableForm::Words | TableForm::Branches | TableForm::Offsets => {
                    (base + 4 * u64::from(entry), 4)
                }
            };
            if bound.is_none() && at + size > limit {
                break;
            }
            let Some(word) = self.text.word(at) else {
                break;
            };
            let target = match table.form {
                TableForm::Bytes => here + 4 + 2 * u64::from(word & 0xff),
                TableForm::Halfwords => here + 4 + 2 * u64::from(word & 0xffff),
                TableForm::Words => u64::from(word & !1),
                TableForm::Branches => at,
                TableForm::Offsets => {
                    base.wrapping_add_signed(i64::from(word as i32)) & 0xffff_fffe
                }
            };
            let Some(target_half) = self.half(Target {
                svma: target,
                thumb: self.start.thumb,
            }) else {
                if bound.is_none() {
                    break;
                }
                continue;
            };
            if target > here {
                limit = limit.min(target);
            }
            targets.insert(target_half);
            if table.form == TableForm::Branches && bound.is_none() {
                break;
            }
        }
        targets.into_iter().collect()
    }

    /// The fix point. Returns calls that seem not to return.
    fn fix(&mut self, entry: State) -> Vec<u32> {
        self.states = vec![None; self.index.len()];
        let mut found = Vec::new();
        if self.states.is_empty() {
            return found;
        }
        self.states[0] = Some(entry);
        let mut open: BTreeSet<u32> = BTreeSet::from([0]);
        let mut steps = 200 * self.decoded.len() + 1000;
        while let Some(leader) = open.pop_first() {
            let Some(state) = self.states.get(leader as usize).cloned().flatten() else {
                continue;
            };
            let mut edges = Vec::new();
            let last = self.block(leader, state, &mut |_, _, _| {}, &mut edges);
            steps = steps.saturating_sub(last);
            if steps == 0 {
                self.doubtful = true;
                break;
            }
            for (to, state) in edges {
                let Some(half) = to else {
                    // Ran off the function or into what is not code.
                    match state.after {
                        Some(call) => found.push(call),
                        None => self.doubtful = true,
                    }
                    continue;
                };
                let Some(place) = self.states.get_mut(half as usize) else {
                    continue;
                };
                match place {
                    Some(old) => {
                        let conflict =
                            matches!((old.depth(), state.depth()), (Some(a), Some(b)) if a != b);
                        if conflict && old.after != state.after && !old.shares_frame(&state) {
                            // The path that came from a call is the one that is not real; if both did, the one
                            // whose call is right before the place where they meet.
                            let culprit = match (old.after, state.after) {
                                (Some(a), Some(b)) if a < half && b < half => Some(a.max(b)),
                                (Some(a), Some(b)) if a < half || b >= half => Some(a.min(b)),
                                (Some(_), Some(b)) => Some(b),
                                (a, b) => a.or(b),
                            };
                            found.extend(culprit);
                        }
                        if old.meet(&state) {
                            open.insert(half);
                        }
                    }
                    empty => {
                        *empty = Some(state);
                        open.insert(half);
                    }
                }
            }
        }
        found
    }

    /// Carry one block out. `edges` gets where it goes and with what state; `None` is nowhere good.
    fn block(
        &self,
        leader: u32,
        mut state: State,
        visit: &mut dyn FnMut(u32, &Instruction, &State),
        edges: &mut Vec<(Option<u32>, State)>,
    ) -> usize {
        // Consecutive instructions under one condition: the state if it holds, `state` if not.
        let mut held: Option<(u8, State)> = None;
        let word = |svma: u64| self.text.word(svma);
        let mut half = leader;
        let mut count = 0;
        loop {
            if half != leader && (half as usize) < self.index.len() && self.leaders.contains(&half)
            {
                if let Some((_, other)) = held {
                    state.meet(&other);
                }
                edges.push((Some(half), state));
                return count;
            }
            let Some(instruction) = self.at(half) else {
                if let Some((_, other)) = held {
                    state.meet(&other);
                }
                edges.push((None, state));
                return count;
            };
            count += 1;
            let condition = instruction.condition;
            if let Some((of, other)) = &held
                && condition != *of
                && condition != *of ^ 1
            {
                state.meet(&other.clone());
                held = None;
            }
            match &held {
                Some((_, other)) => {
                    let mut both = state.clone();
                    both.meet(other);
                    visit(half, instruction, &both);
                }
                None => visit(half, instruction, &state),
            }
            let next = half + u32::from(instruction.len) / 2;
            let conditional = condition != ALWAYS;
            if conditional && held.is_none() {
                let mut taken = state.clone();
                // `cmp r0, #0` after a clone system call, then `eq` or `ne`
                match condition {
                    0 => {
                        taken.zero();
                        state.nonzero();
                    }
                    1 => {
                        taken.nonzero();
                        state.zero();
                    }
                    _ => {}
                }
                held = Some((condition, taken));
            }
            let active = match &mut held {
                Some((of, other)) if condition == *of => other,
                _ => &mut state,
            };
            if active.register(14) == Value::Unknown
                && active.after.is_some()
                && pushes_link(instruction)
            {
                edges.push((None, active.clone()));
                return count;
            }
            for &effect in instruction.effects() {
                active.apply(effect, &word);
            }
            let mut onward = true;
            match instruction.flow {
                Flow::Next => {}
                Flow::Call(target) => {
                    let silent = self.silent.contains(&half)
                        || target.is_some_and(|target| self.text.never_returns(target));
                    active.called();
                    active.after = Some(half);
                    onward = !silent;
                }
                Flow::Jump(target) => {
                    if self.half(target).is_none() && active.depth() != Some(0) {
                        self.unclean.set(true);
                    }
                    // Jumps out are reported by `report`, from the state before the jump.
                    if let Some(to) = self.half(target) {
                        edges.push((Some(to), active.clone()));
                    }
                    onward = false;
                }
                Flow::IfZero { target, nonzero } => {
                    let mut taken = active.clone();
                    if nonzero {
                        taken.nonzero();
                        active.zero();
                    } else {
                        taken.zero();
                        active.nonzero();
                    }
                    if let Some(to) = self.half(target) {
                        edges.push((Some(to), taken));
                    }
                }
                Flow::Table(_) => {
                    for (_, targets) in self.tables.iter().filter(|table| table.0 == half) {
                        for &to in targets {
                            edges.push((Some(to), active.clone()));
                        }
                    }
                    onward = false;
                }
                Flow::Indirect => {
                    // Without a frame it is a tail call.
                    if active.depth() != Some(0) {
                        self.unclean.set(true);
                        for (_, targets) in self.tables.iter().filter(|table| table.0 == half) {
                            for &to in targets {
                                edges.push((Some(to), active.clone()));
                            }
                        }
                    }
                    onward = false;
                }
                Flow::Return => {
                    if active.depth() != Some(0) {
                        self.unclean.set(true);
                    }
                    if active.depth().is_some_and(|depth| depth != 0) && active.after.is_some() {
                        edges.push((None, active.clone()));
                    }
                    onward = false;
                }
                Flow::Trap => onward = false,
            }
            if !onward {
                if !conditional {
                    return count;
                }
                // Only the path on which the condition holds is gone.
                match held.take() {
                    Some((of, other)) if of != condition => state = other,
                    _ => {}
                }
            }
            half = next;
        }
    }

    /// Code between the reached parts that nothing leads to, if there is a jump that may.
    fn orphan(&self) -> Option<u32> {
        let framed = |half: u32| {
            // The block that ends with this jump.
            let leader = self.leaders.range(..=half).next_back()?;
            let state = self.states.get(*leader as usize)?.clone()?;
            let mut framed = false;
            self.block(
                *leader,
                state,
                &mut |at, _, state| framed |= at == half && state.depth() != Some(0),
                &mut Vec::new(),
            );
            framed.then_some(())
        };
        let open = self.tables.iter().any(|(half, targets)| {
            (targets.is_empty() || *targets == self.orphans) && framed(*half).is_some()
        });
        if !open {
            return None;
        }
        let last = self.index.iter().rposition(|index| *index != NONE)?;
        let mut half = 0u32;
        while (half as usize) < last {
            if let Some(instruction) = self.at(half) {
                half += u32::from(instruction.len) / 2;
                continue;
            }
            let svma = self.svma(half);
            if self.literals.contains(&(svma & !3)) || self.text.is_data(svma) {
                half += 1;
                continue;
            }
            let instruction = self.text.decode(svma, self.start.thumb)?;
            if instruction.effects().is_empty() && instruction.flow == Flow::Next {
                half += u32::from(instruction.len) / 2;
                continue;
            }
            return (!pushes_link(&instruction)).then_some(half);
        }
        None
    }

    fn report(mut self, settled: bool) -> Function {
        let mut function = Function {
            start: self.start.svma,
            end: self.end,
            thumb: self.start.thumb,
            doubtful: self.doubtful || !settled,
            ..Function::default()
        };
        self.unclean.set(false);
        let leaders: Vec<u32> = self.leaders.iter().copied().collect();
        let mut returns = false;
        for leader in leaders {
            let Some(state) = self.states.get_mut(leader as usize).and_then(Option::take) else {
                continue;
            };
            let mut edges = Vec::new();
            self.block(
                leader,
                state,
                &mut |half, instruction, state| {
                    let svma = self.svma(half);
                    function
                        .instructions
                        .push((svma, instruction.len, state.clone()));
                    for effect in instruction.effects() {
                        if let Effect::Literal { svma, .. } = effect {
                            function.literals.push(*svma);
                        }
                    }
                    match instruction.flow {
                        Flow::Call(Some(target)) => function.calls.push(target),
                        Flow::Jump(target) | Flow::IfZero { target, .. }
                            if self.half(target).is_none() =>
                        {
                            returns = true;
                            function.exits.push((target, state.clone()));
                        }
                        Flow::Return | Flow::Indirect => returns = true,
                        _ => {}
                    }
                },
                &mut edges,
            );
        }
        function.endless = !returns;
        function.clean = returns && !self.unclean.get();
        function.instructions.sort_by_key(|entry| entry.0);
        function
    }
}

/// A prologue's `push {.., lr}`.
fn pushes_link(instruction: &Instruction) -> bool {
    matches!(
        instruction.effects(),
        [Effect::Add { to: 13, from: 13, by }, Effect::Store { base: 13, mask, .. }]
            if *by < 0 && mask >> 14 & 1 == 1
    )
}

/// Conditions of the instructions of an IT block, last first. `it` is the low byte of the instruction:
/// `cccc mmmm`, firstcond and mask (ARM ARM, A7.7.38).
fn it_conditions(it: u8) -> Vec<u8> {
    let (first, mask) = (it >> 4, it & 0xf);
    let count = 4 - mask.trailing_zeros() as u8;
    let mut conditions = vec![first];
    for index in 1..count {
        conditions.push(first & 0xe | mask >> (4 - index) & 1);
    }
    conditions.reverse();
    conditions
}
