/* shown.c - a library that shows the directory $SHOWN by the name /shown/data. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char name[] = "/shown/data";

/* real - the path itself, or the path that it shows. */
static const char *real(const char *path)
{
    static _Thread_local char out[4096];
    if (!path || strncmp(path, name, sizeof(name) - 1) != 0)
        return path;
    snprintf(out, sizeof(out), "%s%s", getenv("SHOWN"), path + sizeof(name) - 1);
    return out;
}

#define NEXT(function) ((__typeof__(function) *)dlsym(RTLD_NEXT, #function))

int stat(const char *path, struct stat *out)
{
    return NEXT(stat)(real(path), out);
}

int lstat(const char *path, struct stat *out)
{
    return NEXT(lstat)(real(path), out);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return NEXT(open)(real(path), flags, mode);
}

int open64(const char *path, int flags, ...)
{
    return open(path, flags, 0666);
}

DIR *opendir(const char *path)
{
    return NEXT(opendir)(real(path));
}
