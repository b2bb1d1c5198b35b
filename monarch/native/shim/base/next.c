/* next.c - finds the functions that ours interpose, all of them before the program begins. */
#include "shim/base/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

_Static_assert(sizeof(off_t) == 8 && sizeof(struct stat) == sizeof(struct stat64),
               "the 64-bit names are the plain ones");

/* Without threads an older system has none. */
extern void pthread_testcancel(void) __attribute__((weak));

/* The oldest versions, so that the library loads on systems older than the one that built
 * it; the build names libdl.so.2, which holds dlsym there. A libc before 2.34 has no other
 * versions, and keeps pthread_testcancel in a library that is not linked. */
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
#if defined(__x86_64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver pthread_testcancel, pthread_testcancel@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver pthread_testcancel, pthread_testcancel@GLIBC_2.17");
#endif
#endif

next_fn *_Atomic next_pointers[HOOK_COUNT];

static const char *const names[HOOK_COUNT] = {
#define HOOK(type, name, parameters) #name,
#include "shim/base/hooks.def"
#undef HOOK
};

/* absent - fails with ENOSYS, in place of a function that this libc lacks. */
static long absent(void)
{
    errno = ENOSYS;
    return -1;
}

/* plain_name - "open64" -> "open", for a libc whose plain functions are 64-bit; false
 * when the name has no such form. */
static int plain_name(const char *name, char *out, size_t bytes)
{
    size_t n = strlen(name);
    if (n < 3 || n - 2 >= bytes || strcmp(name + n - 2, "64") != 0)
        return 0;
    memcpy(out, name, n - 2);
    out[n - 2] = 0;
    return 1;
}

/* next_find - looks one function up. No call does so after our constructor: dlsym() waits for the
 * lock that dlopen() holds while it runs constructors, which may wait for a thread that is here.
 * Concurrent threads find the same function. */
next_fn *next_find(enum hook hook)
{
    int kept = errno;
    char plain[32];
    void *found = dlsym(RTLD_NEXT, names[hook]);
    if (!found && plain_name(names[hook], plain, sizeof(plain)))
        found = dlsym(RTLD_NEXT, plain);
    next_fn *fn = (next_fn *)absent;
    if (found)
        memcpy(&fn, &found, sizeof(fn));
    atomic_store_explicit(&next_pointers[hook], fn, memory_order_relaxed);
    errno = kept;
    return fn;
}

__attribute__((constructor)) static void find_all(void)
{
    for (int hook = 0; hook < HOOK_COUNT; hook++)
        next_get((enum hook)hook);
}

/* next_testcancel - a cancellation point without a system call. */
void next_testcancel(void)
{
    if (pthread_testcancel)
        pthread_testcancel();
}
