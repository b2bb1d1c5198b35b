/* rights.c - reads and compares the rights of processes by system calls alone, without
 * malloc and errno, so that the Shim can call it anywhere. */
#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mountinfo.h"

enum { GROUPS_FEW = 32, MARK_CAPS_BITS = 2 };

/* mix - spreads a number over 64 bits, so that sums rarely collide. */
static uint64_t mix(uint64_t n)
{
    n = (n + 1) * 0x9e3779b97f4a7c15u;
    n = (n ^ n >> 29) * 0xbf58476d1ce4e5b9u;
    return n ^ n >> 32;
}

static void digest_groups(struct rights *out, const gid_t *groups, long count)
{
    out->group_count = (uint32_t)count;
    for (long i = 0; i < count; i++)
        out->groups_digest += mix(groups[i]);
}

/* read_many - reads groups that are too many for a small stack. */
static void read_many(struct rights *out, long count)
{
    size_t bytes = (size_t)count * sizeof(gid_t);
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (room == MAP_FAILED) {
        out->group_count = (uint32_t)count; /* without a digest: equal to no others */
        return;
    }
    digest_groups(out, room, syscall(SYS_getgroups, count, room));
    munmap(room, bytes);
}

static void read_groups(struct rights *out)
{
    gid_t few[GROUPS_FEW];
    long count = syscall(SYS_getgroups, 0, NULL);
    if (count > GROUPS_FEW)
        read_many(out, count);
    else
        digest_groups(out, few, syscall(SYS_getgroups, GROUPS_FEW, few));
}

static uint32_t read_caps(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, sets) < 0)
        return 0;
    uint32_t effective = sets[0].effective;
    return (effective >> CAP_DAC_OVERRIDE & 1 ? RIGHT_OVERRIDE : 0) |
           (effective >> CAP_DAC_READ_SEARCH & 1 ? RIGHT_SEARCH : 0);
}

/* rights_read - reads ids, groups and capabilities of the calling thread. */
void rights_read(struct rights *out)
{
    int kept = errno;
    *out = (struct rights){.caps = read_caps()};
    out->euid = (uint32_t)syscall(SYS_geteuid);
    out->egid = (uint32_t)syscall(SYS_getegid);
    read_groups(out);
    errno = kept;
}

static uint64_t namespace_of(const char *name)
{
    struct stat st;
    return syscall(SYS_newfstatat, -1, name, &st, 0) == 0 ? st.st_ino : 0;
}

/* rights_locate - adds the root of the process and, if /proc is mounted, its namespaces. */
void rights_locate(struct rights *out)
{
    int kept = errno;
    struct stat st;
    if (syscall(SYS_newfstatat, -1, "/", &st, 0) == 0) {
        out->root_ino = st.st_ino;
        out->root_mount = mountinfo_id(AT_FDCWD, "/", 0);
    }
    out->mount_ns = namespace_of("/proc/self/ns/mnt");
    out->user_ns = namespace_of("/proc/self/ns/user");
    out->pid_ns = namespace_of("/proc/self/ns/pid");
    errno = kept;
}

/* rights_placed - the process sees the same mounts under the same paths as the
 * agent. */
bool rights_placed(const struct rights *mine, const struct rights *agents)
{
    return mine->mount_ns && mine->mount_ns == agents->mount_ns &&
           mine->root_ino == agents->root_ino && mine->root_mount == agents->root_mount;
}

static bool groups_same(const struct rights *a, const struct rights *b)
{
    return a->group_count == b->group_count && a->groups_digest == b->groups_digest;
}

/* rights_same - two processes of one user namespace have the same rights. */
bool rights_same(const struct rights *a, const struct rights *b)
{
    return a->euid == b->euid && a->egid == b->egid && a->caps == b->caps &&
           groups_same(a, b);
}

/* rights_cover - this process may read all that the agent may read. In another user
 * namespace ids have other numbers, and capabilities do not apply to files of the
 * agent's namespace; there, the owner of the segments has the agent's user id. */
bool rights_cover(const struct rights *mine, const struct rights *agents)
{
    bool known = mine->user_ns && agents->user_ns;
    if (known && mine->user_ns != agents->user_ns)
        return agents->caps == 0 && mine->group_count == agents->group_count;
    uint32_t caps = known ? mine->caps : 0;
    return mine->euid == agents->euid && mine->egid == agents->egid &&
           (agents->caps & ~caps) == 0 && groups_same(mine, agents);
}

/* rights_mark - returns capabilities and groups in one word, for a saved index. */
uint32_t rights_mark(const struct rights *r)
{
    uint64_t groups = mix(r->groups_digest + mix(r->egid) + r->group_count);
    return (uint32_t)groups << MARK_CAPS_BITS | r->caps;
}
