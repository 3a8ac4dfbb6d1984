/* The other halves of cycles between a program and its library: through the PLT, through the GOT, and as the compiler makes them. */
void by_plt(volatile unsigned *word);
void by_got(volatile unsigned *word);
__asm__(".text\n.globl through_plt, through_got\n.type through_plt, @function\n.type through_got, @function\n"
        "through_plt: .cfi_startproc\n endbr64\n jmp by_plt@PLT\n .cfi_endproc\n.size through_plt, .-through_plt\n"
        "through_got: .cfi_startproc\n endbr64\n jmp *by_got@GOTPCREL(%rip)\n .cfi_endproc\n.size through_got, .-through_got");
void back_from_library(volatile unsigned *word);
void between(volatile unsigned *word) {
    if (!*word) back_from_library(word);
}
