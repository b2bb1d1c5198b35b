/* server_buffers.c - the buffers of replies whose bytes are in memory: some are kept. */
#include <stdlib.h>

#include "dataplane/peer_server.h"

/* server_take_buffer - of CHUNK_BYTES, or NULL. */
uint8_t *server_take_buffer(struct server *s)
{
    return s->spare_count ? s->spares[--s->spare_count] : malloc(CHUNK_BYTES);
}

/* server_return_buffer - of a reply that has been sent, or NULL. */
void server_return_buffer(struct server *s, uint8_t **buffer)
{
    if (*buffer && s->spare_count < SERVER_SPARES_MAX)
        s->spares[s->spare_count++] = *buffer;
    else
        free(*buffer);
    *buffer = NULL;
}
