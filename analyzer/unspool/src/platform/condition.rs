//! Evaluates the condition of an ARM instruction, because a breakpoint in its place is always hit.

/// True if an instruction with `condition` is executed under `flags`, the CPSR. A32 conditions of
/// 14 and more are always true. T32's `it` block has its state in the flags.
pub(crate) fn holds(flags: u64, condition: u8) -> bool {
    let flags = flags as u32;
    let thumb = flags >> 5 & 1 == 1;
    // ARM DDI 0406, A2.5.2: IT[7:2] is CPSR[15:10], IT[1:0] is CPSR[26:25]. The condition is
    // IT[7:4]; there is none if IT[3:0] is 0.
    let it = flags >> 10 & 0x3f;
    let it = it << 2 | flags >> 25 & 3;
    let condition = match (thumb, it & 0xf) {
        (true, 0) => 14,
        (true, _) => it >> 4,
        (false, _) => u32::from(condition),
    };
    let [n, z, c, v] = [31, 30, 29, 28].map(|bit| flags >> bit & 1 == 1);
    // A8.3
    let base = match condition >> 1 {
        0 => z,
        1 => c,
        2 => n,
        3 => v,
        4 => c && !z,
        5 => n == v,
        6 => n == v && !z,
        _ => return true,
    };
    base != (condition & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn conditions() {
        const Z: u64 = 1 << 30;
        const T: u64 = 1 << 5;
        assert!(holds(0, 14) && holds(Z, 15));
        assert!(holds(Z, 0) && !holds(0, 0) && holds(0, 1) && !holds(Z, 1));
        // ge, lt, gt, le with n == v
        assert!(holds(0, 10) && !holds(0, 11) && holds(0, 12) && !holds(Z, 12) && holds(Z, 13));
        // T32 keeps the condition in the flags: `it eq` before its one instruction is IT = 0000
        // 1000.
        let it_eq = T | 0b10 << 10;
        assert!(holds(T, 0) && holds(it_eq | Z, 14) && !holds(it_eq, 14));
        // `itt ne` is 0001 1100 before its first instruction and 0001 1000 before its second.
        let it_ne = T | 0b00_0111 << 10;
        assert!(!holds(it_ne | Z, 14) && holds(it_ne, 14));
    }
}
