/* python.h - the Python that runs everything but `monarch run`. */
#ifndef MONARCH_PYTHON_H
#define MONARCH_PYTHON_H

#include <limits.h>

int python_find(char path[PATH_MAX]);
char **python_argv(const char *python, const char *const *head, char **tail);
void python_exec(const char *python, char **argv, char **envp);

#endif
