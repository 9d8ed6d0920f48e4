# Signed return addresses, as GCC describes them; nothing here is executed.
    .text
    .globl _start
_start:
    .cfi_startproc
    paciasp
    .cfi_negate_ra_state
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    nop
    .cfi_remember_state
    ldp x29, x30, [sp], #32
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    autiasp
    .cfi_negate_ra_state
    ret
    .cfi_restore_state
    nop
    .cfi_endproc

key_b:
    .cfi_startproc
    .cfi_b_key_frame
    pacibsp
    .cfi_negate_ra_state
    nop
    .cfi_endproc
