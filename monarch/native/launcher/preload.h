/* preload.h - the environments of the program and of the agent. */
#ifndef MONARCH_PRELOAD_H
#define MONARCH_PRELOAD_H

char **preload_add(char **envp, const char *run);
char **preload_remove(char **envp);
char **preload_none(char **envp);

#endif
