@ Every class of instruction that writes the program counter, in A32 and in T32, each taken and (where it
@ has a condition) not taken. No C library: the same instructions are executed wherever it runs. Ends
@ with exit code 0; a wrong turn ends in `lost`, exit code 1.
    .syntax unified
    .arch armv7-a
    .fpu neon
    .global _start
    .text

    .macro lose
    b lost
    .endm

@ ---------------------------------------------------------------- A32
    .arm
lost:
    mov r0, #1
    mov r7, #1
    svc 0

_start:
    mov r0, #0
    b 1f                        @ B
    lose
1:  cmp r0, #0
    bne lost                    @ B, not taken
    beq 1f                      @ B, taken
    lose
1:  bl a32_leaf                 @ BL, BX lr
    ldr r1, =a32_leaf
    blx r1                      @ BLX (register)
    adr r1, 1f
    bx r1                       @ BX
    lose
1:  adr r1, 1f
    mov pc, r1                  @ MOV
    lose
1:  adr r1, 1f
    movne pc, r1                @ MOV, not taken
    moveq pc, r1
    lose
1:  mov r2, #8
    add pc, pc, r2              @ ADD (register): two ahead, and one more
    lose
    lose
    lose
1:  mov r2, #2
    add pc, pc, r2, lsl #2      @ ADD, shifted
    lose
    lose
    lose
    mov r2, #2
    mov r3, #1
    adr r1, 1f - 8
    add pc, r1, r2, lsl #2      @ ADD with another base
    lose
1:  adr r1, 1f + 64
    sub pc, r1, #64             @ SUB
    lose
1:  adr r1, 1f
    rsb r2, r1, #0
    rsb pc, r2, #0              @ RSB
    lose
1:  adr r1, 1f
    bic r2, r1, #0xff
    and r3, r1, #0xff
    orr pc, r2, r3              @ ORR
    lose
1:  adr r1, 1f
    mvn r2, r1
    mvn pc, r2                  @ MVN
    lose
1:  adr r1, 1f
    mov r2, #0x5a
    eor r3, r1, r2
    eor pc, r3, r2              @ EOR
    lose
1:  adr r1, 1f
    sub r2, r1, #1
    cmp r0, r0                  @ carry set
    adc pc, r2, #0              @ ADC
    lose
1:  adr r1, 1f
    cmp r0, r0
    sbc pc, r1, #0              @ SBC
    lose
1:  adr r1, 1f
    cmp r0, r0
    mov r2, #0
    rsc pc, r2, r1              @ RSC
    lose
1:  adr r1, 1f
    orr r2, r1, #3
    bic pc, r2, #3              @ BIC
    lose
1:  adr r1, 1f
    mvn r2, #0
    and pc, r1, r2              @ AND
    lose
1:  adr r1, 1f
    ror r2, r1, #28
    mov pc, r2, ror #4          @ MOV, rotated
    lose
1:  adr r1, 1f
    lsl r2, r1, #1
    cmp r0, #1                  @ carry clear
    mov pc, r2, rrx             @ MOV, rotated with extend
    lose
1:  adr r1, 1f
    mov r2, #0
    add pc, r1, r0, asr #32     @ ADD, arithmetic shift by 32
    lose
1:  adr r1, 1f
    add pc, r1, r1, lsr #32     @ ADD, logical shift by 32
    lose
1:  ldr pc, =1f                 @ LDR (literal)
    lose
1:  ldr r1, =1f
    push {r1}
    ldr pc, [sp], #4            @ LDR, after-indexed
    lose
1:  ldr r1, =1f
    push {r1}
    ldr pc, [sp]                @ LDR, offset 0
    lose
1:  mov r2, sp
    add r2, r2, #16
    ldr r1, =1f
    str r1, [sp]
    ldr pc, [r2, #-16]!         @ LDR, pre-indexed down
    lose
1:  pop {r1}
    adr r1, table
    mov r2, #1
    ldr pc, [r1, r2, lsl #2]    @ LDR (register), shifted
table:
    .word lost, 1f, 2f
1:  adr r1, table + 16
    mov r2, #8
    ldr pc, [r1, -r2]           @ LDR (register), subtracted
    lose
2:  ldr r1, =1f
    push {r0-r3}
    push {r1}
    ldm sp!, {pc}               @ LDM with one register
    lose
1:  pop {r0-r3}
    ldr r5, =1f
    push {r0-r5}
    mov r4, r5
    pop {r0-r4, pc}             @ LDMIA
    lose
1:  ldr r5, =1f
    push {r0-r5}
    sub r6, sp, #4
    ldmib r6, {r0-r4, pc}       @ LDMIB
    lose
1:  ldr r5, =1f
    str r5, [sp, #20]
    add r6, sp, #24
    ldmdb r6, {r0-r4, pc}       @ LDMDB
    lose
1:  ldr r5, =1f
    str r5, [sp, #20]
    add r6, sp, #20
    ldmda r6, {r0-r4, pc}       @ LDMDA
    lose
1:  add sp, sp, #24
    mov r0, #0
    ldr r8, =word
a32_exclusive:
1:  ldrex r1, [r8]              @ an exclusive sequence
    add r1, r1, #1
    strex r2, r1, [r8]
    cmp r2, #0
    bne 1b
1:  ldrexd r2, r3, [r8]         @ with an exit, taken
    cmp r2, #0
    beq lost
    cmp r2, #1
    beq 1f
    strexd r1, r2, r3, [r8]
    lose
1:  clrex
    ldrexb r2, [r8]             @ and not taken
    cmp r2, #9
    beq lost
    strexb r1, r2, [r8]
    cmp r1, #0
    bne 1b
a32_exclusive_end:
    mov r7, #20                 @ getpid
    svc 0
    cmp r0, r0
    mov r7, #20
    svceq 0
    svcne 0
    vmov.i32 q0, #1             @ what looks like other things
    vadd.i32 q0, q0, q0
    ldr r1, =0xffff0fe0
    mov lr, pc
    mov pc, r1                  @ the kernel's helpers: get_tls, called the old way
    ldr r1, =0xffff0fa0
    blx r1                      @ memory barrier
    blx t32                     @ BLX (immediate), to T32
    ldr r1, =t32_leaf
    blx r1
    ldr pc, =t32_again + 1      @ LDR to T32
    lose

a32_end:
    adr r4, 1f
    bl handled
1:  mov r0, #0
    mov r7, #1                  @ exit
    svc 0
    lose

a32_leaf:
    bx lr

a32_odd:
    push {r4, lr}
    pop {r4, pc}

@ A signal to ourselves: the handler returns by rt_sigreturn.
handled:
    push {r4, lr}
    ldr r1, =action
    mov r0, #10                 @ SIGUSR1
    mov r2, #0
    mov r3, #8
    mov r7, #174                @ rt_sigaction
    svc 0
    mov r7, #20
    svc 0
    mov r1, #10
    mov r7, #37                 @ kill
    svc 0
    ldr r1, =seen
    ldr r1, [r1]
    cmp r1, #10
    bne lost
    pop {r4, pc}

    .ltorg

@ ---------------------------------------------------------------- T32
    .thumb
    .thumb_func
t32:
    push {r4, lr}
    movs r0, #0
    b 1f                        @ B T2
    nop
t32_lost:
    ldr.w pc, =lost
1:  cmp r0, #0
    bne t32_lost                @ B T1, not taken
    beq 1f                      @ B T1, taken
    b t32_lost
1:  bne.w t32_lost              @ B T3, not taken
    beq.w 1f                    @ B T3, taken
    b t32_lost
1:  b.w 1f                      @ B T4
    b t32_lost
1:  cbz r0, 1f                  @ CBZ, taken
    b t32_lost
1:  cbnz r0, t32_never          @ CBNZ, not taken
    movs r1, #1
    cbz r1, t32_never
    cbnz r1, 1f
t32_never:
    b t32_lost
1:  bl t32_leaf                 @ BL
    blx a32_odd                 @ BLX (immediate), to A32
    ldr r1, =a32_odd
    blx r1                      @ BLX (register)
    ldr r1, =1f + 1
    bx r1                       @ BX
    b t32_lost
1:  ldr r1, =1f
    mov pc, r1                  @ MOV
    b t32_lost
    .align 2
1:  movs r2, #4
    add pc, r2                  @ ADD
    b t32_lost
    b t32_lost
    b t32_lost
    movs r2, #1
    tbb [pc, r2]                @ TBB
2:  .byte (t32_lost_2 - 2b) / 2, (1f - 2b) / 2
t32_lost_2:
    b t32_lost
1:  movs r2, #2
    tbh [pc, r2, lsl #1]        @ TBH
2:  .hword (t32_lost_3 - 2b) / 2, (t32_lost_3 - 2b) / 2, (1f - 2b) / 2
t32_lost_3:
    b t32_lost
1:  adr r1, bytes
    movs r2, #1
    tbb [r1, r2]                @ TBB with a table elsewhere
2:  b t32_lost
    .equ far, (1f - 2b) / 2
bytes:
    .byte 0, far, 0, 0
1:  ldr.w pc, =1f + 1           @ LDR (literal)
1:  ldr r1, =1f + 1
    push {r1}
    ldr.w pc, [sp], #4          @ LDR T4, after-indexed
1:  ldr r1, =1f + 1
    push {r1}
    ldr.w pc, [sp]              @ LDR T3
1:  ldr r1, =1f + 1
    str r1, [sp]
    add r2, sp, #8
    ldr.w pc, [r2, #-8]         @ LDR T4, down
1:  ldr r1, =1f + 1
    str r1, [sp]
    add r2, sp, #16
    ldr.w pc, [r2, #-16]!       @ LDR T4, pre-indexed
1:  ldr r1, =1f + 1
    str r1, [sp]
    sub r2, sp, #8
    movs r3, #2
    ldr.w pc, [r2, r3, lsl #2]  @ LDR (register)
1:  pop {r1}
    ldr r1, =1f + 1
    push {r0-r3}
    push {r1}
    pop {pc}                    @ POP T1, nothing else
1:  pop {r0-r3}
    ldr r5, =1f + 1
    push {r0-r5}
    pop {r0-r4, pc}             @ POP T1
1:  ldr r5, =1f + 1
    push {r0-r5}
    pop.w {r0-r3, r8, pc}       @ POP T2
1:  ldr r5, =1f + 1
    push {r0-r5}
    add r6, sp, #24
    ldmdb r6, {r0-r3, r8, pc}   @ LDMDB
1:  ldm.w sp!, {r0-r5}
    movs r0, #0
    cmp r0, #0
    itt eq                      @ IT: both executed
    addeq r1, r0, #1
    addeq r2, r0, #2
    ite ne                      @ one passed over
passed_1:
    addne r1, r0, #3
    addeq r1, r0, #4
    cmp r1, #4
    bne t32_far
    ittet eq                    @ the flags change inside
    addeq r1, r0, #5
    cmpeq r1, #6
    addne r2, r0, #7
passed_2:
    addeq r2, r0, #8
    it eq
passed_3:
    beq t32_far                 @ a branch in a block, not taken
    it ne
    bne 1f                      @ and taken
t32_far:
    b t32_lost
1:  itt ne
    addne.w r1, r0, #0x10000    @ 32 bits wide in a block
    popne {r1}
    push {r1}
    ldr r1, =1f + 1
    cmp r0, #0
    it eq
    bxeq r1                     @ BX in a block
    b t32_far
1:  ldr r1, =1f + 1
    push {r1}
    itt eq
    moveq r1, #1
    popeq {pc}                  @ POP in a block
    b t32_far
1:  ldr r8, =word
t32_exclusive:
1:  ldrex r1, [r8]              @ an exclusive sequence
    adds r1, #1
    strex r2, r1, [r8]
    cmp r2, #0
    bne 1b
    ldrexh r1, [r8]             @ with IT and an exit
    cmp r1, #0
    beq t32_far
    it ne
    addne r1, #1
    cbz r1, t32_far_2
    strexh r2, r1, [r8]
    ldrex r1, [r8]              @ the store in a block
    cmp r1, #77
    itt ne
    addne r1, #1
    strexne r2, r1, [r8]
t32_exclusive_end:
    movs r7, #20
    svc 0
    vmov.i32 q0, #1
    vadd.i32 q0, q0, q0
    bl 1f
    b t32_done
1:  bx lr
t32_far_2:
    b t32_far
t32_done:
    pop {r4, pc}

    .thumb_func
t32_leaf:
    bx lr

    .thumb_func
t32_again:
    ldr r1, =1f
    bx r1
    .ltorg
    .align 2
    .arm
1:  b a32_end

    .thumb
    .thumb_func
handler:
    ldr r1, =seen
    str r0, [r1]
    bx lr
    .thumb_func
restorer:
    movs r7, #173               @ rt_sigreturn
    svc 0
    .ltorg

    .data
    .align 3
word:
    .word 0, 0
action:
    .word handler, 0x04000004, restorer + 1, 0, 0    @ SA_SIGINFO | SA_RESTORER
seen:
    .word 0
