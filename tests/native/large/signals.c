/* signals.c - a signal handler that reads its own file while the sequence reads.
 *
 * No call may fail with EINTR that does not on a plain file, and the bytes that the
 * handler reads are right, whatever it has interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "play.h"

enum { INTERVAL_US = 2000, READ_BYTES = 512 };

static volatile sig_atomic_t wrong;
static int own_fd = -1;
static unsigned calls;

/* arm - one signal; the next only when its handler ends, to ensure progress. */
static void arm(int interval_us)
{
    struct itimerval one = {.it_value = {0, interval_us}};
    setitimer(ITIMER_REAL, &one, NULL);
}

static void read_meanwhile(int number)
{
    char bytes[READ_BYTES];
    int kept = errno;
    off_t places = size_of(files) / READ_BYTES;
    off_t at = (off_t)(mix(++calls) % (uint64_t)places) * READ_BYTES;
    ssize_t count = pread(own_fd, bytes, sizeof(bytes), at);
    (void)number;
    if (count != READ_BYTES || wrong_word(bytes, READ_BYTES, at, model_of(files)) >= 0)
        wrong++;
    arm(INTERVAL_US);
    errno = kept;
}

/* begin_signals - from now on, of a file that nothing changes. */
void begin_signals(void)
{
    struct sigaction action = {.sa_handler = read_meanwhile};
    int fd = open(files->path, O_RDONLY);
    own_fd = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FROM + 1);
    close(fd);
    sigaction(SIGALRM, &action, NULL);
    arm(INTERVAL_US);
}

/* end_signals - also prints whether the handler has read wrong bytes. */
void end_signals(void)
{
    if (own_fd < 0)
        return;
    signal(SIGALRM, SIG_IGN);
    arm(0);
    close(own_fd);
    own_fd = -1;
    if (wrong)
        say(" WRONG: %d reads of a signal handler", (int)wrong);
    wrong = 0;
}

/* wait_for - the status of a child that ends, whatever the number of signals. */
int wait_for(int child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    errno = UNTOUCHED;
    return status;
}
