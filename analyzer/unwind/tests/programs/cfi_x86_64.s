# Every call frame instruction that an assembler can emit; nothing here is executed.
    .text
    .globl _start
_start:
    .cfi_startproc
    .cfi_undefined rip
    nop
    .cfi_endproc

nested:
    .cfi_startproc
    nop
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    nop
    .cfi_def_cfa_register rbp
    .cfi_remember_state
    nop
    .cfi_remember_state
    .cfi_offset rbx, -24
    nop
    .cfi_restore_state
    nop
    .cfi_restore rbp
    .cfi_def_cfa rsp, 8
    nop
    .cfi_restore_state
    .skip 300, 0x90
    .cfi_same_value rbx
    .cfi_register r12, r13
    .cfi_val_offset r14, -32
    .skip 70000, 0x90
    .cfi_def_cfa rsp, 80000
    .cfi_offset r15, -70000
    nop
    .cfi_endproc

escaped:
    .cfi_startproc
    nop
    # def_cfa_sf rsp, -2 (factored); offset_extended_sf rbx, 3
    .cfi_escape 0x12, 7, 0x7e
    .cfi_escape 0x11, 3, 3
    nop
    # def_cfa_offset_sf -4; val_offset_sf r12, 2; offset_extended r13, 2;
    # GNU_negative_offset_extended r14, 1
    .cfi_escape 0x13, 0x7c
    .cfi_escape 0x15, 12, 2
    .cfi_escape 0x05, 13, 2
    .cfi_escape 0x2f, 14, 1
    nop
    # GNU_args_size 32; restore_extended rbx; MIPS_advance_loc8 0
    .cfi_escape 0x2e, 32
    .cfi_escape 0x06, 3
    nop
    # expression rbp: breg7 8; val_expression rbx: breg7 16, plus_uconst 8
    .cfi_escape 0x10, 6, 2, 0x77, 8
    .cfi_escape 0x16, 3, 4, 0x77, 16, 0x23, 8
    nop
    # def_cfa_expression: breg7 40, deref
    .cfi_escape 0x0f, 3, 0x77, 40, 0x06
    nop
    .cfi_endproc

signal:
    .cfi_startproc
    .cfi_signal_frame
    .cfi_personality 0x9b, pointer
    .cfi_lsda 0x1b, lsda
    nop
    .cfi_def_cfa_offset 160
    nop
    .cfi_endproc

broken:
    .cfi_startproc
    nop
    .cfi_def_cfa_offset 24
    nop
    # an unknown instruction: the row before it is kept
    .cfi_escape 0x3e
    .cfi_def_cfa_offset 32
    nop
    .cfi_endproc

after:
    .cfi_startproc
    nop
    .cfi_def_cfa_offset 48
    ret
    .cfi_endproc

    .data
pointer: .quad 0
lsda: .quad 0
