# A function whose debug information nests 400,000 inlined functions: no compiler does, damage may.
        .text
        .globl  _start
        .type   _start, @function
_start: nop
        nop
        ret
.Lend:  .size   _start, . - _start

        .section .debug_abbrev,"",@progbits
        .uleb128 1, 0x11                # DW_TAG_compile_unit, with children
        .byte   1
        .uleb128 0x11, 0x01, 0x12, 0x06 # DW_AT_low_pc addr, DW_AT_high_pc data4
        .byte   0, 0
        .uleb128 2, 0x2e                # DW_TAG_subprogram, with children
        .byte   1
        .uleb128 0x11, 0x01, 0x12, 0x06
        .byte   0, 0
        .uleb128 3, 0x1d                # DW_TAG_inlined_subroutine, with children
        .byte   1
        .byte   0, 0
        .byte   0

        .section .debug_info,"",@progbits
        .long   .Linfo_end - .Linfo
.Linfo: .short  4
        .long   0
        .byte   8
        .uleb128 1
        .quad   _start
        .long   .Lend - _start
        .uleb128 2
        .quad   _start
        .long   .Lend - _start
        .fill   400000, 1, 3
.Linfo_end:
