/* stdio.c - streams opened by path. */
#include <errno.h>

#include "shim/names/directories.h"
#include "shim/base/next.h"
#include "shim/serving/redirects.h"
#include "shim/base/sys.h"

#define STREAM(path, mode, staged, named)                                 \
    struct redirect s;                                                    \
    FILE *stream;                                                         \
    if (redirect_stream(&s, path, mode)) {                                \
        s.kept_errno = errno;                                             \
        stream = (staged);                                                \
        while (redirect_moved(&s)) {                                      \
            if (stream)                                                   \
                fclose(stream);                                           \
            stream = s.path ? (staged) : NULL;                            \
        }                                                                 \
        if (redirect_opened(&s, stream != NULL))                          \
            return stream;                                                \
    } else if (mode && mode[0] == 'r' && redirect_may_lack(&s) &&         \
               directory_lacks_at(s.seg, AT_FDCWD, path, s.flags)) {      \
        errno = ENOENT;                                                   \
        return NULL;                                                      \
    }                                                                     \
    stream = (named);                                                     \
    int fd = stream ? fileno(stream) : -1;                                \
    if (s.writes ? redirect_diverts(&s, AT_FDCWD, path, fd)               \
                 : (s.sampled | s.doubted) && redirect_found(&s, fd)) {   \
        if (stream)                                                       \
            fclose(stream);                                               \
        stream = (staged);                                                \
        redirect_opened(&s, stream != NULL);                              \
    }                                                                     \
    if (s.cause != CAUSE_NONE)                                            \
        redirect_count(&s, AT_FDCWD, path, stream ? fileno(stream) : -1); \
    return stream;

FILE *fopen(const char *path, const char *mode){
    STREAM(path, mode, NEXT(fopen)(s.path, mode), NEXT(fopen)(path, mode))}

FILE *fopen64(const char *path, const char *mode){
    STREAM(path, mode, NEXT(fopen64)(s.path, mode), NEXT(fopen64)(path, mode))}

FILE *_IO_fopen(const char *path, const char *mode)
{
    STREAM(path, mode, NEXT(_IO_fopen)(s.path, mode), NEXT(_IO_fopen)(path, mode))
}

/* A failed freopen() has closed the stream, so a second try is impossible: check first that the
 * path can be opened, and keep the Replica in the Pool. Only an eviction in between for lack of
 * memory makes an open fail here. */
static bool opens(struct redirect *s)
{
    redirect_keep(s);
    while (redirect_moved(s))
        ;
    int fd = s->path ? sys_openat(AT_FDCWD, s->path, O_RDONLY | O_CLOEXEC) : -ENOENT;
    if (fd >= 0)
        sys_close(fd);
    else
        errno = -fd;
    return fd >= 0;
}

/* Other libcs, such as musl, do not open the file again by freopen(NULL). */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

static const char *reopened(struct redirect *s, const char *path, const char *mode,
                            FILE *stream)
{
    const char *volatile named = path; /* headers promise that it is not NULL */
    if (!(named && redirect_stream(s, named, mode)) &&
        !redirect_reopened(s, named, mode,
                           stream && (named || gnu_get_libc_version) ? fileno(stream)
                                                                     : -1))
        return named;
    s->kept_errno = errno;
    if (s->final)
        return s->path;
    return redirect_opened(s, opens(s)) ? s->path : named;
}

static FILE *after(struct redirect *s, const char *path, FILE *result)
{
    redirect_release(s);
    if (s->final)
        redirect_opened(s, result != NULL);
    if (path && s->cause != CAUSE_NONE)
        redirect_count(s, AT_FDCWD, path, result ? fileno(result) : -1);
    if (result)
        redirect_written(s, fileno(result));
    return result;
}

FILE *freopen(const char *path, const char *mode, FILE *stream)
{
    struct redirect s;
    return after(&s, path,
                 NEXT(freopen)(reopened(&s, path, mode, stream), mode, stream));
}

FILE *freopen64(const char *path, const char *mode, FILE *stream)
{
    struct redirect s;
    return after(&s, path,
                 NEXT(freopen64)(reopened(&s, path, mode, stream), mode, stream));
}
