/* request.h - the thread that listens to programs. */
#ifndef MONARCH_REQUEST_H
#define MONARCH_REQUEST_H

#include <stdint.h>

struct engine;

void request_listen(struct engine *e);
void request_forward(struct engine *e, uint32_t file);
void request_ring(struct engine *e);

#endif
