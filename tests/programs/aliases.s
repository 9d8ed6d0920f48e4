# Functions with several symbols, in the forms that compilers and hand-written assembly leave.

    .macro alias name, kind, size
    .globl \name
    .type \name, \kind
    .size \name, \size
\name:
    .endm

    .text
    alias unsized, @function, 0
    alias sized, @function, 15
    .fill 32, 1, 0x90

    alias sized_first, @function, 15
    alias unsized_last, @function, 0
    .fill 32, 1, 0x90

    .type unsized_local, @function
unsized_local:
    alias sized_global, @function, 15
    .fill 32, 1, 0x90

    .type sized_local, @function
    .size sized_local, 15
sized_local:
    alias unsized_global, @function, 0
    .fill 32, 1, 0x90

    alias shorter, @function, 4
    alias longer, @function, 15
    alias outer, @function, 32
    .fill 8, 1, 0x90
    alias inner, @function, 4
    .fill 24, 1, 0x90

    alias label, @notype, 0
    alias behind_label, @function, 15
    .fill 32, 1, 0x90

    alias data, @object, 30
    alias behind_data, @function, 15
    .fill 32, 1, 0x90
