/* process.c - the Shim's state of a process: its slot in the counters, and memory for paths that is
 * not on the stack. */
#include "shim/base/process.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/base/scratch.h"
#include "shim/base/sys.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { LIFE_BYTES = 4096, EXE_BYTES = 512 };

struct life *process_life;
static uint64_t agents_pids;           /* the PID namespace of the agent */
static enum process_state shown_state; /* the state of this process in its slot */
static char the_exe[EXE_BYTES];        /* read once, into zeros; stacks may be small */

/* process_prepare - maps the page that distinguishes a fork child from its parent; false without
 * memory for it. A process that is never served is not an active one. */
bool process_prepare(uint64_t pids, bool served)
{
    agents_pids = pids;
    shown_state = served ? PROCESS_ACTIVE : PROCESS_LAUNCHED;
    long at = sys_call(SYS_mmap, 0, LIFE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at < 0 && at >= -4095)
        return false;
    process_life = (struct life *)at;
    if (sys_call(SYS_madvise, at, LIFE_BYTES, MADV_WIPEONFORK, 0, 0) < 0)
        process_life->watched = true;
    return true;
}

/* process_changed - this process has no slot of its own. */
bool process_changed(void)
{
    return !atomic_load_explicit(&process_life->slot, memory_order_relaxed) ||
           process_life->pid != sys_getpid();
}

/* process_exe - returns the path of the running program, "" without /proc. */
const char *process_exe(void)
{
    if (!the_exe[0])
        sys_readlink("/proc/self/exe", the_exe, EXE_BYTES - 1);
    return the_exe;
}

/* process_state - sets the state of the process that the agent sees. */
void process_state(struct process *p, enum process_state state)
{
    atomic_store_explicit((_Atomic uint32_t *)&p->state, state, memory_order_release);
}

/* process_resume - sets the usual state of this process, also after a failed exec. */
void process_resume(struct process *p)
{
    process_state(p, shown_state);
}

/* announce - writes the program and the state of this process into its slot. */
static void announce(struct process *p, const char *exe)
{
    size_t n = strlen(exe);
    const char *tail = n < PROCESS_NAME_BYTES ? exe
                                              : exe + n - (PROCESS_NAME_BYTES - 1);
    if (n)
        memcpy(p->name, tail, strlen(tail) + 1);
    process_resume(p);
}

/* revive - returns the slot in which a launcher or an exec wrapper announced this process; a
 * launcher that was under the Shim itself has left a second one. */
static struct process *revive(struct counters *all, uint32_t pid, const char *exe)
{
    struct process *first = process_of(all, pid);
    uint32_t used = atomic_load_explicit((_Atomic uint32_t *)&all->slots_used_max,
                                         memory_order_acquire);
    if (!first)
        return NULL;
    for (struct process *p = first; p < all->process + used; p++)
        if (p->pid == pid && p->state > PROCESS_CLAIMED)
            announce(p, exe);
    return first;
}

/* unknown_to_agent - this process has another number in the agent's PID namespace: by ours, the
 * agent would watch an unrelated process. */
static bool unknown_to_agent(void)
{
    struct stat ours;
    return agents_pids && sys_stat(AT_FDCWD, "/proc/self/ns/pid", &ours, 0) == 0 &&
           ours.st_ino != agents_pids;
}

/* process_begin - takes the slot. If two threads do so at once, before any constructor ran, the
 * counts of the process are spread over two. */
void process_begin(struct counters *all)
{
    uint32_t pid = sys_getpid();
    const char *exe = process_exe();
    bool shares = unknown_to_agent();
    struct process *mine = shares ? &all->process[0] : revive(all, pid, exe);
    if (shares)
        atomic_fetch_add_explicit((_Atomic uint64_t *)&all->slots_full, 1,
                                  memory_order_relaxed);
    else if (!mine)
        mine = process_claim(all, pid, shown_state, exe);
    process_life->pid = pid;
    atomic_store_explicit(&process_life->slot, mine, memory_order_release);
}

/* process_borrowed - this is a vfork child, or shares memory like one: it runs in its
 * parent's memory and must leave that as it is. */
bool process_borrowed(void)
{
    return process_life && process_life->pid != 0 && process_life->pid != sys_getpid();
}

/* Pieces for all threads, and a mapping when all of them are taken. They are not thread-local: libc
 * takes that memory out of each thread's stack. */
enum { PIECES = 64, MAPPING_BYTES = 4096 };

_Static_assert(PATH_BYTES_MAX + 0 <= MAPPING_BYTES + 0, "a piece fits into a page");

/* Pieces that a fork, or a jump out of a signal handler, has left taken stay so. */
static _Atomic uint64_t taken; /* one bit per piece */
static _Alignas(16) char pieces[PIECES][PATH_BYTES_MAX];

/* scratch_take - returns PATH_BYTES_MAX bytes, or NULL. */
char *scratch_take(void)
{
    uint64_t seen = atomic_load_explicit(&taken, memory_order_relaxed);
    while (~seen) {
        uint64_t lowest = ~seen & (seen + 1);
        if (atomic_compare_exchange_weak_explicit(&taken, &seen, seen | lowest,
                                                  memory_order_acquire,
                                                  memory_order_relaxed))
            return pieces[__builtin_ctzll(lowest)];
    }
    long at = sys_call(SYS_mmap, 0, MAPPING_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return at < 0 && at >= -4095 ? NULL : (char *)at;
}

/* scratch_give - frees a piece. */
void scratch_give(char *piece)
{
    uintptr_t first = (uintptr_t)pieces, at = (uintptr_t)piece;
    if (at >= first && at < first + sizeof(pieces))
        atomic_fetch_and_explicit(&taken,
                                  ~((uint64_t)1 << (at - first) / PATH_BYTES_MAX),
                                  memory_order_release);
    else
        sys_call(SYS_munmap, (long)piece, MAPPING_BYTES, 0, 0, 0);
}
