/* rights.h - the rights of a process to read files, and its namespaces. */
#ifndef MONARCH_RIGHTS_H
#define MONARCH_RIGHTS_H

#include <stdbool.h>

#include "layout.h"

void rights_read(struct rights *out);
void rights_locate(struct rights *out);
bool rights_same(const struct rights *a, const struct rights *b);
bool rights_placed(const struct rights *mine, const struct rights *agents);
bool rights_cover(const struct rights *mine, const struct rights *agents);
uint32_t rights_mark(const struct rights *r);

#endif
