/* child_env.c - puts the Shim back into scrubbed environments, and records each
 * program started, so that those the Shim cannot enter are seen too. */
#include "shim/hooks/child_env.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/names/mark.h"
#include "shim/base/process.h"
#include "shim/base/scratch.h"
#include "shim/base/sys.h"

static const char SHIM[] = "/shim.so";
static const char PRELOAD[] = "LD_PRELOAD=";
static const char RUN[] = "MONARCH_STAGING_RUN=";
static const char DISABLE[] = "MONARCH_STAGING_DISABLE=";

/* find - returns the place of a variable in an environment of `n` entries, -1: none. */
static long find(char *const envp[], long n, const char *prefix)
{
    size_t bytes = strlen(prefix);
    for (long i = 0; i < n; i++)
        if (strncmp(envp[i], prefix, bytes) == 0)
            return i;
    return -1;
}

/* find_preload - returns the place of the last LD_PRELOAD, which the linker uses; -1: none. */
static long find_preload(char *const envp[], long n)
{
    while (n-- > 0)
        if (strncmp(envp[n], PRELOAD, sizeof(PRELOAD) - 1) == 0)
            break;
    return n;
}

/* holds_shim - the list names our library already. */
static bool holds_shim(const struct segments *seg, const char *list)
{
    for (const char *at = list; (at = strstr(at, seg->run)); at++) {
        const char *end = at + seg->run_bytes;
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

static size_t preload_bytes(const struct segments *seg, const char *old)
{
    return sizeof(PRELOAD) + seg->run_bytes + sizeof(SHIM) + strlen(old) + 1;
}

static long count_of(char *const envp[])
{
    long n = 0;
    while (envp && envp[n])
        n++;
    return n;
}

/* child_room - maps memory for an environment that is too large for the stack. */
void *child_room(struct child_env *l)
{
    long at = sys_call(SYS_mmap, 0, (long)l->room_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (at >= 0 || at < -4095)
        return (void *)at;
    l->room_bytes = 0;
    return NULL;
}

/* child_end - frees that memory, if the program was not started. */
void child_end(struct child_env *l)
{
    if (l->room_bytes > ON_STACK_MAX)
        sys_call(SYS_munmap, (long)l->entries, (long)l->room_bytes, 0, 0, 0);
}

/* child_unseen - marks all roots, because the program has to be started without the Shim: its
 * writes will not be seen, so nothing more is served. */
void child_unseen(const struct child_env *l)
{
    for (uint32_t i = 0; l->seg && i < l->seg->catalog->root_count; i++)
        mark_root(l->seg, i, MARKED_ALL);
}

/* divide - divides the room for an environment of `n` entries. */
static void divide(struct child_env *l, const struct segments *seg, long n)
{
    l->run = (char *)(l->entries + n + 3);
    l->preload = l->run + sizeof(RUN) + seg->run_bytes;
}

/* set_preload - writes the libraries that the program has requested, then ours: others that
 * translate paths must run before it. */
static void set_preload(struct child_env *l, const char *old)
{
    char *at = join(join(l->preload, PRELOAD), old);
    if (!strchr("=: ", at[-1]))
        at = join(at, ":");
    join(join(at, l->seg->run), SHIM);
}

/* leads_here - the variable names this run, or another one that exists. */
static bool leads_here(const struct segments *seg, const char *run)
{
    SCRATCH(path);
    struct stat st;
    if (strcmp(run, seg->run) == 0)
        return true;
    if (!path || !run[0] || strlen(run) + sizeof(SHIM) > PATH_BYTES_MAX)
        return false;
    join(join(path, run), SHIM);
    return sys_stat(AT_FDCWD, path, &st, 0) == 0;
}

/* lacks - one of our variables is not in the environment, or leads nowhere. */
static bool lacks(const struct segments *seg, char *const envp[], long n)
{
    long preload = find_preload(envp, n), run = find(envp, n, RUN);
    return preload < 0 || !holds_shim(seg, envp[preload] + sizeof(PRELOAD) - 1) ||
           run < 0 || !leads_here(seg, envp[run] + sizeof(RUN) - 1);
}

/* child_bytes - returns the room for an environment with all that we may add; 0: no segments, or
 * the environment is too large to be changed without need. */
size_t child_bytes(char *const envp[])
{
    const struct segments *seg = attach_for_marking();
    long n = count_of(envp), at = find_preload(envp, n);
    if (!seg)
        return 0;
    size_t bytes = ((size_t)n + 3) * sizeof(*envp) +
                   preload_bytes(seg, at < 0 ? "" : envp[at]) + sizeof(RUN) +
                   seg->run_bytes;
    return bytes <= ON_STACK_MAX || lacks(seg, envp, n) ? bytes : 0;
}

static bool privileged(const char *path)
{
    struct stat st;
    return path && sys_stat(AT_FDCWD, path, &st, 0) == 0 &&
           (st.st_mode & (S_ISUID | S_ISGID));
}

/* wanted - returns the number of entries to copy if the environment lacks a variable, else -1. */
static long wanted(const struct child_env *l, const char *path, char *const envp[])
{
    long n = count_of(envp), off = find(envp, n, DISABLE);
    if (!l->room_bytes || privileged(path) ||
        (off >= 0 && strcmp(envp[off] + sizeof(DISABLE) - 1, "1") == 0))
        return -1;
    return lacks(l->seg, envp, n) ? n : -1;
}

/* loadable - the dynamic linker would find our library: its directory is removed with the job, and
 * another root or user may not reach it. */
static bool loadable(const struct segments *seg)
{
    SCRATCH(path);
    struct stat st;
    if (!path || seg->run_bytes + sizeof(SHIM) > PATH_BYTES_MAX)
        return false;
    join(join(path, seg->run), SHIM);
    int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd <
        0) /* this process may be out of descriptors; the next program need not be */
        return fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM;
    uid_t user = sys_geteuid();
    bool ours = sys_fstat(fd, &st) == 0 && (user == 0 || user == st.st_uid);
    sys_close(fd);
    return ours; /* rights that are left from another user end with the exec */
}

/* removed - the run directory was removed, and our library with it: neither the rights of this
 * process nor its view of the file system hide it from the next program. */
static bool removed(const struct segments *seg)
{
    struct stat st;
    int error = sys_stat(AT_FDCWD, seg->run, &st, 0);
    return error == -ENOENT || error == -ENOTDIR || error == -ESTALE;
}

/* remove_words - copies a list for LD_PRELOAD without our library. */
static void remove_words(const struct segments *seg, char *to, const char *list)
{
    char *start = to;
    for (size_t n, whole; *list; list += whole) {
        n = strcspn(list, ": ");
        whole = n + strspn(list + n, ": ");
        if (n == seg->run_bytes + sizeof(SHIM) - 1 &&
            memcmp(list, seg->run, seg->run_bytes) == 0 &&
            memcmp(list + seg->run_bytes, SHIM, sizeof(SHIM) - 1) == 0)
            continue;
        memcpy(to, list, whole);
        to += whole;
    }
    while (to > start && (to[-1] == ':' || to[-1] == ' '))
        to--;
    *to = 0;
}

/* without_shim - returns the environment for a program that our library cannot enter: the dynamic
 * linker would complain to its stderr. */
static char *const *without_shim(struct child_env *l, const struct segments *seg,
                                 char *const envp[])
{
    long n = count_of(envp), at = find_preload(envp, n), kept = 0;
    if (!l->room_bytes || at < 0 || !holds_shim(seg, envp[at] + sizeof(PRELOAD) - 1) ||
        loadable(seg))
        return envp;
    divide(l, seg, n);
    remove_words(seg, join(l->preload, PRELOAD), envp[at] + sizeof(PRELOAD) - 1);
    for (long i = 0; i < n; i++) {
        if (i != at)
            l->entries[kept++] = envp[i];
        else if (l->preload[sizeof(PRELOAD) - 1])
            l->entries[kept++] = l->preload;
    }
    l->entries[kept] = NULL;
    return l->entries;
}

/* child_scrub - removes our library from the environment of this process if new programs could not
 * load it: system() and popen() pass that on unchanged. */
void child_scrub(void)
{
    static char words[PRELOAD_BYTES_MAX];
    const struct segments *seg = attached_segments();
    long n = count_of(environ), at = find_preload(environ, n);
    if (!seg || process_borrowed() || at < 0 || strlen(environ[at]) >= sizeof(words) ||
        !holds_shim(seg, environ[at] + sizeof(PRELOAD) - 1) || loadable(seg))
        return;
    remove_words(seg, join(words, PRELOAD), environ[at] + sizeof(PRELOAD) - 1);
    if (words[sizeof(PRELOAD) - 1])
        environ[at] = words;
    else
        for (; environ[at]; at++)
            environ[at] = environ[at + 1];
}

/* child_environment - returns the environment to start a program with: the caller's own unless it
 * has lost the Shim, or names one that cannot be loaded. `path` is NULL if unknown. */
char *const *child_environment(struct child_env *l, const char *path,
                               char *const envp[])
{
    l->seg = attach_for_marking();
    l->slot = NULL;
    l->given = envp;
    if (!l->seg)
        return envp;
    if (!loadable(l->seg)) {
        if (attach_for_serving() && !l->seg->elsewhere && removed(l->seg))
            child_unseen(l);
        return without_shim(l, l->seg, envp);
    }
    long n = l->seg->injects ? wanted(l, path, envp) : -1;
    if (n < 0)
        return envp;
    divide(l, l->seg, n);
    if (n)
        memcpy(l->entries, envp, (size_t)n * sizeof(*envp));
    long preload = find_preload(envp, n), run = find(envp, n, RUN), end = n;
    const char *old = preload < 0 ? "" : envp[preload] + sizeof(PRELOAD) - 1;
    if (!holds_shim(l->seg, old)) {
        set_preload(l, old);
        l->entries[preload < 0 ? end++ : preload] = l->preload;
    }
    if (run < 0 || !leads_here(l->seg, envp[run] + sizeof(RUN) - 1)) {
        join(join(l->run, RUN), l->seg->run);
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

/* own_slot - returns the slot of this process; a vfork child, which runs in its parent's memory,
 * finds or takes one without writing there. */
static struct process *own_slot(const struct child_env *l, const char *name)
{
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    if (!process_borrowed())
        return slot;
    if (slot == &l->seg->counters->process[0]) /* then its children have none either */
        return slot;
    struct process *own = process_of(l->seg->counters, sys_getpid());
    return own ? own
               : process_claim(l->seg->counters, sys_getpid(), PROCESS_LAUNCHED, name);
}

/* child_begin - records that this process is about to become another program. */
void child_begin(struct child_env *l, const char *name)
{
    if (!l->seg || !name)
        return;
    struct process *slot = atomic_load_explicit(&process_life->slot,
                                                memory_order_relaxed);
    struct process *own = own_slot(l, name);
    if (!slot || !own || own == &l->seg->counters->process[0])
        return;
    memcpy(l->name_before, slot->name, PROCESS_NAME_BYTES);
    rename_slot(own, name);
    process_state(own, PROCESS_LAUNCHED);
    l->slot = own;
}

/* child_failed - restores the record, because exec has returned: the process runs the former
 * program, or, after vfork, that of its parent. It keeps the slot, which the agent may know by
 * now. */
void child_failed(struct child_env *l)
{
    if (!l->slot)
        return;
    memcpy(l->slot->name, l->name_before, PROCESS_NAME_BYTES);
    process_resume(l->slot);
}

/* child_spawned - records a child of posix_spawn(), unless it has recorded itself; if both did so
 * at once, both slots are equal. */
void child_spawned(const struct child_env *l, pid_t pid, const char *name)
{
    if (!l->seg || !name || own_slot(l, name) == &l->seg->counters->process[0] ||
        process_of(l->seg->counters, (uint32_t)pid))
        return;
    struct process *mine = process_claim(l->seg->counters, (uint32_t)pid,
                                         PROCESS_LAUNCHED, name);
    struct process *first = process_of(l->seg->counters, (uint32_t)pid);
    if (mine != first && mine != &l->seg->counters->process[0])
        process_state(mine, PROCESS_ACTIVE);
}
