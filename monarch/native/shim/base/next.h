/* next.h - the functions that ours interpose: NEXT(open) is the open that ours interposes. */
#ifndef MONARCH_NEXT_H
#define MONARCH_NEXT_H

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wordexp.h>

struct open_how; /* linux/openat2.h, which old systems lack */

enum hook {
#define HOOK(type, name, parameters) HOOK_##name,
#include "shim/base/hooks.def"
#undef HOOK
    HOOK_COUNT
};

/* Declaring each hook again proves that the table and libc's headers agree. */
#define HOOK(type, name, parameters)                             \
    type name parameters __attribute__((visibility("default"))); \
    typedef type fn_##name parameters;
#include "shim/base/hooks.def"
#undef HOOK

typedef void next_fn(void);

extern next_fn *_Atomic next_pointers[HOOK_COUNT];

next_fn *next_find(enum hook hook);
void next_testcancel(void);

static inline next_fn *next_get(enum hook hook)
{
    next_fn *fn = atomic_load_explicit(&next_pointers[hook], memory_order_relaxed);
    return __builtin_expect(fn != NULL, 1) ? fn : next_find(hook);
}

#define NEXT(name) ((fn_##name *)next_get(HOOK_##name))

#endif
