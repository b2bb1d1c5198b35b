/* forks.c - a second process that continues with the same descriptors, in step. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "play.h"

/* Ends of two pipes, above the numbers of the sequence. */
static int orders_fd = -1, answers_fd = -1;
static pid_t child;
static int in_child;

int is_child(void)
{
    return in_child;
}

/* raise_fd - moves a descriptor to a number that no sequence uses. */
static int raise_fd(int fd)
{
    int raised = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FROM + 1);
    close(fd);
    return raised;
}

/* kept_pipe - a pipe with both ends above the numbers of a sequence. */
static int kept_pipe(int ends[2])
{
    if (pipe(ends))
        return -1;
    int low = ends[0], high = ends[1];
    ends[0] = raise_fd(low);
    ends[1] = raise_fd(high);
    return 0;
}

static void obey(int orders, int answers, void (*run)(uint64_t))
{
    uint64_t seed;
    while (read(orders, &seed, sizeof(seed)) == sizeof(seed)) {
        run(seed);
        if (write(answers, &seed, sizeof(seed)) != sizeof(seed))
            _exit(3);
    }
    _exit(0);
}

static void (*run_one)(uint64_t);

/* op_fork - a child that carries out some of the operations from now on. */
void op_fork(void)
{
    int orders[2], answers[2];
    if (in_child || child) {
        say(" one is enough");
        return;
    }
    if (kept_pipe(orders) || kept_pipe(answers))
        exit(3);
    child = fork();
    if (child == 0) {
        in_child = 1;
        close(orders[1]);
        close(answers[0]);
        say_nothing();
        obey(orders[0], answers[1], run_one);
    }
    close(orders[0]);
    close(answers[1]);
    orders_fd = orders[1];
    answers_fd = answers[0];
}

static int await_answer(void)
{
    uint64_t seed;
    ssize_t count;
    while ((count = read(answers_fd, &seed, sizeof(seed))) < 0 && errno == EINTR)
        ;
    return count != sizeof(seed);
}

/* pass_on - lets the child do it, or returns 0 if it is for this process. */
int pass_on(void (*run)(uint64_t), uint64_t seed)
{
    run_one = run;
    if (!child || draw(2))
        return 0;
    if (write(orders_fd, &seed, sizeof(seed)) != sizeof(seed) || await_answer()) {
        say("  WRONG: the child has gone");
        return 0;
    }
    return 1;
}

/* op_join - ends the child. */
void op_join(void)
{
    if (in_child || !child)
        return;
    close(orders_fd);
    close(answers_fd);
    say(" joined %d", wait_for(child));
    child = 0;
}
