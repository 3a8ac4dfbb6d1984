divert(-1)
# The PARMACS (ANL) macros for programs that Blizzard runs on many nodes, as the SPLASH programs use them.
#
#   blizzard parmacs program.C > program.c        # or: m4 "$(blizzard config --m4)" program.C > program.c
#   cc -O2 program.c $(blizzard config --cflags --libs) -o program
#   blizzard run -n 4 -- ./program -p4
#
# main() runs on node 0 alone, which sets everything up; CREATE makes one more node, with a copy of all private data, as fork does. Memory of
# G_MALLOC is shared, everything else is private to a node. A run needs as many nodes as the program has processes.
#
# Every macro that synchronises is here. A macro of the monitor families (MENTER and its like) is not, so that its use does not compile, rather
# than do nothing. Hints for simulators and tracers are empty.
#
# Source: Lusk et al., Portable Programs for Parallel Processors, 1987; Woo et al., The SPLASH-2 Programs, 1995.

# ---- Environment. The main file has MAIN_ENV, all other files EXTERN_ENV.
define(`MAIN_ENV', `
#include <blizzard_parmacs.h>
')
define(`EXTERN_ENV', defn(`MAIN_ENV'))
define(`ENV', defn(`MAIN_ENV'))
# Arguments (a count of processes, bytes of shared memory, where) need no attention.
define(`MAIN_INITENV', `{;}')
define(`MAIN_END', `{exit(0);}')

# ---- Processes. CREATE(function): one more node calls it. CREATE(function, n): n nodes call it, this one included.
define(`CREATE', `ifelse(`$2', `', `{bz_create((void (*)(void))($1));}',
    `{bz_parmacs_create((void (*)(void))($1), ($2)); $1();}')')
# Waits for so many created nodes to end; whoever counts node 0 too may do so.
define(`WAIT_FOR_END', `{bz_parmacs_wait_for_end($1);}')

# ---- Shared memory.
define(`G_MALLOC', `bz_alloc($1);')
define(`G_MALLOC_F', `bz_alloc($1)')
define(`NU_MALLOC', `bz_alloc($1);')
define(`NU_MALLOC_F', `bz_alloc($1)')
define(`G_FREE', `{bz_free((void *)($1));}')
define(`NU_FREE', defn(`G_FREE'))

# ---- Locks, and arrays of them.
define(`LOCKDEC', `bz_lock_t *($1);')
define(`LOCKINIT', `{($1) = bz_lock_new();}')
define(`LOCK', `{bz_lock($1);}')
define(`UNLOCK', `{bz_unlock($1);}')
define(`NLOCKDEC', defn(`LOCKDEC'))
define(`NLOCKINIT', defn(`LOCKINIT'))
define(`NLOCK', defn(`LOCK'))
define(`NUNLOCK', defn(`UNLOCK'))
define(`ALOCKDEC', `bz_lock_t *($1)[$2];')
define(`ALOCKINIT', `{bz_parmacs_locks(($1), ($2));}')
define(`ALOCK', `{bz_lock(($1)[$2]);}')
define(`AULOCK', `{bz_unlock(($1)[$2]);}')
define(`AGETL', `(($1)[$2])')

# ---- Condition variables. Who waits holds the lock, which is released meanwhile.
define(`CONDVARDEC', `bz_parmacs_condvar_t *($1);')
define(`CONDVARINIT', `{($1) = bz_parmacs_condvar_new();}')
define(`CONDVARWAIT', `{bz_parmacs_condvar_wait(($1), ($2));}')
define(`CONDVARSIGNAL', `{bz_parmacs_condvar_wake(($1), 1);}')
define(`CONDVARBCAST', `{bz_parmacs_condvar_wake(($1), BZ_PARMACS_NODES);}')

# ---- Fences: shared memory is sequentially consistent, so they keep the compiler in order.
define(`RELEASE_FENCE', `{__atomic_thread_fence(__ATOMIC_RELEASE);}')
define(`ACQUIRE_FENCE', `{__atomic_thread_fence(__ATOMIC_ACQUIRE);}')
define(`FULL_FENCE', `{__atomic_thread_fence(__ATOMIC_SEQ_CST);}')

# ---- Barriers: for as many nodes as each use says.
define(`BARDEC', `bz_barrier_t *($1);')
define(`BARINIT', `{($1) = bz_barrier_new();}')
define(`BARRIER', `{bz_barrier_wait(($1), (unsigned)($2));}')

# ---- Pause variables: flags that nodes wait for.
define(`PAUSEDEC', `ifelse(`$2', `', `bz_event_t *($1);', `bz_event_t *($1)[$2];')')
define(`PAUSEINIT', `ifelse(`$2', `', `{($1) = bz_event_new();}', `{bz_parmacs_pauses(($1), ($2));}')')
define(`SETPAUSE', `{bz_event_set($1);}')
define(`CLEARPAUSE', `{bz_event_clear($1);}')
define(`WAITPAUSE', `{bz_event_wait($1);}')
define(`PAUSE', `{bz_event_wait($1);}')
define(`EVENT', `{bz_event_set($1);}')

# ---- Self-scheduled loops: GETSUB(loop, subscript, last, processes) gives each of 0..last to one node. When they are used up, every node
# waits for the others, gets -1, and the loop can begin again.
define(`GSDEC', `bz_parmacs_loop_t ($1);')
define(`GSINIT', `{bz_parmacs_loop_init(&($1));}')
define(`GETSUB', `{($2) = bz_parmacs_subscript(&($1), (long)($3), (unsigned)($4));}')
define(`NU_GSDEC', defn(`GSDEC'))
define(`NU_GSINIT', defn(`GSINIT'))
define(`NU_GETSUB', defn(`GETSUB'))

# ---- Time of day in microseconds.
define(`CLOCK', `{($1) = bz_parmacs_clock();}')

# ---- Hints that say nothing about what the program computes.
define(`SPLASH3_ROI_BEGIN', `;')
define(`SPLASH3_ROI_END', `;')
define(`AUG_ON', `;')
define(`AUG_OFF', `;')
define(`TRACE_ON', `;')
define(`TRACE_OFF', `;')
define(`REF_TRACE_ON', `;')
define(`REF_TRACE_OFF', `;')
define(`DYN_TRACE_ON', `;')
define(`DYN_TRACE_OFF', `;')
define(`DYN_REF_TRACE_ON', `;')
define(`DYN_REF_TRACE_OFF', `;')
define(`DYN_SIM_ON', `;')
define(`DYN_SIM_OFF', `;')
define(`DYN_SCHED_ON', `;')
define(`DYN_SCHED_OFF', `;')
define(`AUG_SET_LOLIMIT', `;')
define(`AUG_SET_HILIMIT', `;')

# m4's own functions that C programs have functions of the same name for.
undefine(`builtin', `debugfile', `debugmode', `decr', `divnum', `dumpdef', `errprint', `esyscmd', `eval', `format', `incr', `index', `indir',
    `len', `m4exit', `m4wrap', `maketemp', `mkstemp', `patsubst', `popdef', `pushdef', `regexp', `shift', `substr', `syscmd', `sysval',
    `traceoff', `traceon', `translit', `undivert', `unix', `__unix__', `__line__', `__file__', `__program__', `__gnu__')
divert(0)dnl
