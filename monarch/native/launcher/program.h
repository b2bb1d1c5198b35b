/* program.h - the program that the user wants to run. */
#ifndef MONARCH_PROGRAM_H
#define MONARCH_PROGRAM_H

#include <limits.h>
#include <signal.h>

enum { EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

enum { OWN_SIGNALS = 2 };

struct program {
    char **argv;
    char path[PATH_MAX];
    struct sigaction signals[OWN_SIGNALS]; /* as our caller has left them */
};

void program_guard(struct program *program);
int program_find(struct program *program, char **argv);
int program_exec(const struct program *program, char **envp);

#endif
