/* child_env.c - puts the Shim back into scrubbed environments, and tells the agent of each
 * program started, so that those the Shim cannot enter are seen too. */
#include "child_env.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mark.h"
#include "process.h"
#include "scratch.h"
#include "sys.h"

static const char SHIM[] = "/shim.so";
static const char PRELOAD[] = "LD_PRELOAD=";
static const char RUN[] = "MONARCH_STAGING_RUN=";
static const char DISABLE[] = "MONARCH_STAGING_DISABLE=";

/* find - the place of a variable in an environment of `n` entries, -1: none. */
static long find(char *const envp[], long n, const char *prefix)
{
    size_t bytes = strlen(prefix);
    for (long i = 0; i < n; i++)
        if (strncmp(envp[i], prefix, bytes) == 0)
            return i;
    return -1;
}

/* find_preload - of LD_PRELOAD, the dynamic linker takes the last. */
static long find_preload(char *const envp[], long n)
{
    while (n-- > 0)
        if (strncmp(envp[n], PRELOAD, sizeof(PRELOAD) - 1) == 0)
            break;
    return n;
}

/* holds_shim - the list names our library already. */
static bool holds_shim(const struct board *b, const char *list)
{
    for (const char *at = list; (at = strstr(at, b->run)); at++) {
        const char *end = at + b->run_bytes;
        if (strncmp(end, SHIM, sizeof(SHIM) - 1) == 0 &&
            (at == list || at[-1] == ':' || at[-1] == ' '))
            return true;
    }
    return false;
}

static char *join(char *to, const char *from)
{
    size_t n = strlen(from);
    memcpy(to, from, n + 1);
    return to + n;
}

static size_t preload_bytes(const struct board *b, const char *old)
{
    return sizeof(PRELOAD) + b->run_bytes + sizeof(SHIM) + strlen(old) + 1;
}

static long count_of(char *const envp[])
{
    long n = 0;
    while (envp && envp[n])
        n++;
    return n;
}

/* launch_room - memory for an environment that is too large for the stack. */
void *launch_room(struct launch *l)
{
    long at = sys_call(SYS_mmap, 0, (long)l->room_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at >= 0 || at < -4095)
        return (void *)at;
    l->room_bytes = 0;
    return NULL;
}

/* launch_end - gives that memory back, where the program was not started. */
void launch_end(struct launch *l)
{
    if (l->room_bytes > ON_STACK_MAX)
        sys_call(SYS_munmap, (long)l->entries, (long)l->room_bytes, 0, 0, 0);
}

/* launch_unseen - the program has to be started without the Shim: what it writes will not
 * be seen, so that nothing more is served. */
void launch_unseen(const struct launch *l)
{
    for (uint32_t i = 0; l->b && i < l->b->catalog->root_count; i++)
        mark_root(l->b, i, MARKED_ALL);
}

/* divide - shares the room out for an environment of `n` entries. */
static void divide(struct launch *l, const struct board *b, long n)
{
    l->run = (char *)(l->entries + n + 3);
    l->preload = l->run + sizeof(RUN) + b->run_bytes;
}

/* set_preload - whatever the program has asked for, then our library: others that
 * translate paths must have done so before it sees them. */
static void set_preload(struct launch *l, const char *old)
{
    char *at = join(join(l->preload, PRELOAD), old);
    if (!strchr("=: ", at[-1]))
        at = join(at, ":");
    join(join(at, l->b->run), SHIM);
}

/* leads_here - the variable names this run, or another one that there is. */
static bool leads_here(const struct board *b, const char *run)
{
    SCRATCH(path);
    struct stat st;
    if (strcmp(run, b->run) == 0)
        return true;
    if (!path || !run[0] || strlen(run) + sizeof(SHIM) > PATH_BYTES_MAX)
        return false;
    join(join(path, run), SHIM);
    return sys_stat(AT_FDCWD, path, &st, 0) == 0;
}

/* lacks - one of our variables is not in the environment, or leads nowhere. */
static bool lacks(const struct board *b, char *const envp[], long n)
{
    long preload = find_preload(envp, n), run = find(envp, n, RUN);
    return preload < 0 || !holds_shim(b, envp[preload] + sizeof(PRELOAD) - 1) ||
           run < 0 || !leads_here(b, envp[run] + sizeof(RUN) - 1);
}

/* launch_bytes - the room for an environment with all that we may put in; 0: we have
 * nothing to do with it, or it is too large to be changed without need. */
size_t launch_bytes(char *const envp[])
{
    const struct board *b = board_marking();
    long n = count_of(envp), at = find_preload(envp, n);
    if (!b)
        return 0;
    size_t bytes = ((size_t)n + 3) * sizeof(*envp) +
                   preload_bytes(b, at < 0 ? "" : envp[at]) + sizeof(RUN) +
                   b->run_bytes;
    return bytes <= ON_STACK_MAX || lacks(b, envp, n) ? bytes : 0;
}

static bool privileged(const char *path)
{
    struct stat st;
    return path && sys_stat(AT_FDCWD, path, &st, 0) == 0 &&
           (st.st_mode & (S_ISUID | S_ISGID));
}

/* wanted - the entries to copy when something is missing in the environment, else -1. */
static long wanted(const struct launch *l, const char *path, char *const envp[])
{
    long n = count_of(envp), off = find(envp, n, DISABLE);
    if (!l->room_bytes || privileged(path) ||
        (off >= 0 && strcmp(envp[off] + sizeof(DISABLE) - 1, "1") == 0))
        return -1;
    return lacks(l->b, envp, n) ? n : -1;
}

/* loadable - the dynamic linker would find our library: its directory goes with the job,
 * and another root or user may not reach it. */
static bool loadable(const struct board *b)
{
    SCRATCH(path);
    struct stat st;
    if (!path || b->run_bytes + sizeof(SHIM) > PATH_BYTES_MAX)
        return false;
    join(join(path, b->run), SHIM);
    int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd <
        0) /* that this process can open no more says nothing of the next program */
        return fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM;
    uid_t user = sys_geteuid();
    bool ours = sys_fstat(fd, &st) == 0 && (user == 0 || user == st.st_uid);
    sys_close(fd);
    return ours; /* rights that are left from another user end with the exec */
}

/* removed - the run directory has gone, and with it our library: it is neither the rights
 * of this process nor its view of the file system that keep it from the next program. */
static bool removed(const struct board *b)
{
    struct stat st;
    int error = sys_stat(AT_FDCWD, b->run, &st, 0);
    return error == -ENOENT || error == -ENOTDIR || error == -ESTALE;
}

/* remove_words - copies a list for LD_PRELOAD without our library. */
static void remove_words(const struct board *b, char *to, const char *list)
{
    char *start = to;
    for (size_t n, whole; *list; list += whole) {
        n = strcspn(list, ": ");
        whole = n + strspn(list + n, ": ");
        if (n == b->run_bytes + sizeof(SHIM) - 1 &&
            memcmp(list, b->run, b->run_bytes) == 0 &&
            memcmp(list + b->run_bytes, SHIM, sizeof(SHIM) - 1) == 0)
            continue;
        memcpy(to, list, whole);
        to += whole;
    }
    while (to > start && (to[-1] == ':' || to[-1] == ' '))
        to--;
    *to = 0;
}

/* without_shim - the environment for a program that our library cannot enter: the
 * dynamic linker would complain to its stderr. */
static char *const *without_shim(struct launch *l, const struct board *b,
                                 char *const envp[])
{
    long n = count_of(envp), at = find_preload(envp, n), kept = 0;
    if (!l->room_bytes || at < 0 || !holds_shim(b, envp[at] + sizeof(PRELOAD) - 1) ||
        loadable(b))
        return envp;
    divide(l, b, n);
    remove_words(b, join(l->preload, PRELOAD), envp[at] + sizeof(PRELOAD) - 1);
    for (long i = 0; i < n; i++) {
        if (i != at)
            l->entries[kept++] = envp[i];
        else if (l->preload[sizeof(PRELOAD) - 1])
            l->entries[kept++] = l->preload;
    }
    l->entries[kept] = NULL;
    return l->entries;
}

/* launch_scrub - takes our library out of the environment of this process if new programs
 * could not load it: system() and popen() hand that on as it is. */
void launch_scrub(void)
{
    static char words[PRELOAD_BYTES_MAX];
    const struct board *b = board_left();
    long n = count_of(environ), at = find_preload(environ, n);
    if (!b || process_borrowed() || at < 0 || strlen(environ[at]) >= sizeof(words) ||
        !holds_shim(b, environ[at] + sizeof(PRELOAD) - 1) || loadable(b))
        return;
    remove_words(b, join(words, PRELOAD), environ[at] + sizeof(PRELOAD) - 1);
    if (words[sizeof(PRELOAD) - 1])
        environ[at] = words;
    else
        for (; environ[at]; at++)
            environ[at] = environ[at + 1];
}

/* launch_environment - the environment to start a program with: the caller's own unless
 * it has lost the Shim, or names one that cannot be loaded. `path` is NULL when it is
 * not known. */
char *const *launch_environment(struct launch *l, const char *path, char *const envp[])
{
    l->b = board_marking();
    l->slot = NULL;
    l->given = envp;
    if (!l->b)
        return envp;
    if (!loadable(l->b)) {
        if (board_enter() && !l->b->elsewhere && removed(l->b))
            launch_unseen(l);
        return without_shim(l, l->b, envp);
    }
    long n = l->b->injects ? wanted(l, path, envp) : -1;
    if (n < 0)
        return envp;
    divide(l, l->b, n);
    if (n)
        memcpy(l->entries, envp, (size_t)n * sizeof(*envp));
    long preload = find_preload(envp, n), run = find(envp, n, RUN), end = n;
    const char *old = preload < 0 ? "" : envp[preload] + sizeof(PRELOAD) - 1;
    if (!holds_shim(l->b, old)) {
        set_preload(l, old);
        l->entries[preload < 0 ? end++ : preload] = l->preload;
    }
    if (run < 0 || !leads_here(l->b, envp[run] + sizeof(RUN) - 1)) {
        join(join(l->run, RUN), l->b->run);
        l->entries[run < 0 ? end++ : run] = l->run;
    }
    l->entries[end] = NULL;
    return l->entries;
}

static void rename_slot(struct process *slot, const char *name)
{
    size_t n = strlen(name);
    if (n >= PROCESS_NAME_BYTES) {
        name += n - (PROCESS_NAME_BYTES - 1);
        n = PROCESS_NAME_BYTES - 1;
    }
    memcpy(slot->name, name, n + 1);
}

/* own_slot - the slot of this process; a vfork child, which runs in its parent's memory,
 * finds or takes one without writing there. */
static struct process *own_slot(const struct launch *l, const char *name)
{
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    if (!process_borrowed())
        return slot;
    if (slot == &l->b->counters->process[0]) /* then its children have none either */
        return slot;
    struct process *own = process_of(l->b->counters, sys_getpid());
    return own ? own
               : process_claim(l->b->counters, sys_getpid(), PROCESS_LAUNCHED, name);
}

/* launch_begin - this process is about to become another program. */
void launch_begin(struct launch *l, const char *name)
{
    if (!l->b || !name)
        return;
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    struct process *own = own_slot(l, name);
    if (!slot || !own || own == &l->b->counters->process[0])
        return;
    memcpy(l->name_before, slot->name, PROCESS_NAME_BYTES);
    rename_slot(own, name);
    process_state(own, PROCESS_LAUNCHED);
    l->slot = own;
}

/* launch_failed - exec has come back: the process is what it was, or, after vfork, what
 * its parent is. The slot stays its own, since the agent may know it by now. */
void launch_failed(struct launch *l)
{
    if (!l->slot)
        return;
    memcpy(l->slot->name, l->name_before, PROCESS_NAME_BYTES);
    process_resume(l->slot);
}

/* launch_spawned - records a child of posix_spawn(), unless it has spoken for itself; if
 * both did so at once, both slots say the same. */
void launch_spawned(const struct launch *l, pid_t pid, const char *name)
{
    if (!l->b || !name || own_slot(l, name) == &l->b->counters->process[0] ||
        process_of(l->b->counters, (uint32_t)pid))
        return;
    struct process *mine = process_claim(l->b->counters, (uint32_t)pid,
                                         PROCESS_LAUNCHED, name);
    struct process *first = process_of(l->b->counters, (uint32_t)pid);
    if (mine != first && mine != &l->b->counters->process[0])
        process_state(mine, PROCESS_ACTIVE);
}
