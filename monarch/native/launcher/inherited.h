/* inherited.h - the descriptors with which we were started, open for writing. */
#ifndef MONARCH_INHERITED_H
#define MONARCH_INHERITED_H

void inherited_mark(int run_fd);

#endif
