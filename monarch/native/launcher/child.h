/* child.h - the program as our child: started, accompanied, and its fate made ours. */
#ifndef MONARCH_CHILD_H
#define MONARCH_CHILD_H

struct run;

int child_run(struct run *run, char **envp);

#endif
