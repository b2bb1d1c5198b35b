/* spawn_actions.c - writes to two.bin by file actions that change the directory first.
 *
 *   spawn_actions path|descriptor|late|copied ROOT
 */
#include <err.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *end)
{
    char text[4] = "";
    int fd = open("two.bin", O_RDONLY);
    if (fd < 0 || read(fd, text, 3) < 0)
        err(1, "two.bin");
    close(fd);
    printf("%s%s", text, end);
}

int main(int argc, char **argv)
{
    static char *const words[] = {(char *)"printf", (char *)"NEW", NULL};
    posix_spawn_file_actions_t actions, copy;
    const char *name = "two.bin";
    pid_t child;
    int status;
    if (argc != 3 || chdir(argv[2]) != 0)
        return 2;
    show(" ");
    posix_spawn_file_actions_init(&actions);
    if (strcmp(argv[1], "path") == 0) {
        posix_spawn_file_actions_addchdir_np(&actions, "a");
        posix_spawn_file_actions_addchdir_np(&actions, "b");
        name = "../../two.bin";
    } else if (strcmp(argv[1], "descriptor") == 0) {
        posix_spawn_file_actions_addfchdir_np(&actions, open("a", O_RDONLY));
        name = "../two.bin";
    } else if (strcmp(argv[1], "late") ==
               0) { /* the target of the name changes between the two calls */
        if (symlink("one.bin", "moving") != 0)
            err(1, "moving");
        name = "moving";
    }
    posix_spawn_file_actions_addopen(&actions, 1, name, O_WRONLY | O_TRUNC, 0);
    if (strcmp(argv[1], "late") == 0 &&
        (unlink("moving") != 0 || symlink("two.bin", "moving") != 0))
        err(1, "moving");
    if (strcmp(argv[1], "copied") == 0) /* the child does not see its own truncation */
        posix_spawn_file_actions_addclose(&actions, 1);
    memcpy(&copy, &actions, sizeof(copy));
    if (posix_spawn(&child, "/usr/bin/printf",
                    strcmp(argv[1], "copied") == 0 ? &copy : &actions, NULL, words,
                    environ) != 0)
        err(1, "posix_spawn");
    waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    show("\n");
    return strcmp(argv[1], "copied") == 0 ? 0 : status;
}
