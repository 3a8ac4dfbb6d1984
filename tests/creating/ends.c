/* How runs end whose nodes node 0 creates; the first argument says which way, the second marks the processes. */
#include <blizzard.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t *word;
static bz_lock_t *lock;

static void returns(void) { word[bz_node()] = bz_node(); }
static void aborts(void) { abort(); }
static void exits(void) { exit(3); }
static void is_killed(void) { kill(getpid(), SIGKILL); }
static void spins(void) {
    for (;;) word[8]++;
}
static void all_take_part(void) {
    bz_barrier();
    uint64_t sum = bz_reduce_sum_u64(bz_node());
    bz_lock(lock);
    word[9] += sum;
    bz_unlock(lock);
    bz_barrier();
}
static void has_a_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(5);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) abort();
    word[bz_node()] = 5;
}

int main(int argc, char **argv) {
    unsigned others = bz_nodes() - 1;
    char how = argc > 1 ? argv[1][0] : ' ';
    word = bz_alloc(4096);
    lock = bz_lock_new();
    switch (how) {
    case 'a': bz_fork_nodes(aborts); break;
    case 'e': bz_fork_nodes(exits); break;
    case 'k': bz_fork_nodes(is_killed); break;
    case 's': bz_fork_nodes(spins); break;
    case 'd': bz_fork_nodes(spins); abort();
    case 'm': for (;;) bz_create(returns);
    case 'w': bz_create(returns); bz_wait_for_end(2); break;
    case 'n': bz_fork_nodes(returns); return 0; /* does not wait for them */
    case 'f': bz_create(returns); others = 1; break; /* fewer than there are */
    case 'b': bz_fork_nodes(all_take_part); all_take_part(); break;
    case 'g': bz_barrier(), bz_barrier(), bz_fork_nodes(all_take_part), all_take_part(); break; /* collectives of node 0 alone before */
    case 'c': bz_fork_nodes(has_a_child); break;
    case 'h': bz_prefetch((void *)word, (size_t)-1, 0), bz_check_in(NULL, (size_t)-1), others = 0; break;
    case 'i': bz_free((char *)word + (40ull << 30)); break; /* the part of node 1, which is not there */
    case 'o': bz_remote_write(1, &others, &others, sizeof others), bz_remote_fence(); break;
    }
    bz_wait_for_end(others);
    /* The nodes are no children that the program could wait for. */
    printf("%llu %llu %d\n", (unsigned long long)word[1], (unsigned long long)word[9], (int)wait(NULL));
    return 0;
}
