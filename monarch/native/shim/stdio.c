/* stdio.c - streams opened by path. */
#include <errno.h>

#include "next.h"
#include "serve.h"
#include "sys.h"

#define STREAM(path, mode, staged, named)     \
    struct serving s;                         \
    FILE *stream;                             \
    if (serve_stream(&s, path, mode)) {       \
        s.kept_errno = errno;                 \
        stream = (staged);                    \
        if (serve_opened(&s, stream != NULL)) \
            return stream;                    \
    }                                         \
    stream = (named);                         \
    if (stream)                               \
        serve_written(&s, fileno(stream));    \
    return stream;

FILE *fopen(const char *path, const char *mode){
    STREAM(path, mode, NEXT(fopen)(s.path, mode), NEXT(fopen)(path, mode))}

FILE *fopen64(const char *path, const char *mode)
{
    STREAM(path, mode, NEXT(fopen64)(s.path, mode), NEXT(fopen64)(path, mode))
}

/* A failed freopen() has closed the stream, so that there is no second try: look first
 * whether the path can be opened. What is evicted in between is the one open that can
 * fail here; nothing is evicted while the job has memory. */
static bool opens(struct serving *s)
{
    int fd = sys_openat(AT_FDCWD, s->path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        sys_close(fd);
    else
        errno = -fd;
    return fd >= 0;
}

static const char *reopened(struct serving *s, const char *path, const char *mode)
{
    if (!path || !serve_stream(s, path, mode))
        return path;
    s->kept_errno = errno;
    return s->final || serve_opened(s, opens(s)) ? s->path : path;
}

FILE *freopen(const char *path, const char *mode, FILE *stream)
{
    struct serving s = {.b = NULL};
    FILE *result = NEXT(freopen)(reopened(&s, path, mode), mode, stream);
    if (result)
        serve_written(&s, fileno(result));
    return result;
}

FILE *freopen64(const char *path, const char *mode, FILE *stream)
{
    struct serving s = {.b = NULL};
    FILE *result = NEXT(freopen64)(reopened(&s, path, mode), mode, stream);
    if (result)
        serve_written(&s, fileno(result));
    return result;
}
