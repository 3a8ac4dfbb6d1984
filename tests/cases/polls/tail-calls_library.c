/* The other half of a cycle between a program and its library. */
void back(volatile unsigned *flag, unsigned round);
void there(volatile unsigned *flag, unsigned round) {
    if (*flag != round) {
        back(flag, round);
    }
}
