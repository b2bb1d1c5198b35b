/* golden.c - values that two machines must agree on: prints the layout of all shared
 * structures, the bytes of the frames between peers, and checksums. */
#include <stdio.h>
#include <string.h>

#include "dataplane/api/layout_dump.h"
#include "dataplane/peers/wire.h"
#include "shared/xxh3.h"

enum { BYTES_MAX = 1 << 20 };

static unsigned char bytes[BYTES_MAX];

static void print_bytes(const char *name, const void *what, size_t n)
{
    const unsigned char *p = what;
    printf("%s ", name);
    for (size_t i = 0; i < n; i++)
        printf("%02x", p[i]);
    printf("\n");
}

static void print_frames(void)
{
    struct frame_request request;
    struct frame_reply reply;
    memset(&request, 0, sizeof(request));
    memset(&reply, 0, sizeof(reply));
    request.magic = FRAME_REQUEST_MAGIC;
    request.blocks = 3;
    request.wanted = 5;
    request.flags = FRAME_UNASKED;
    request.id = 0x0102030405060708;
    request.catalog_digest = 0xfedcba9876543210;
    request.file = 0x11121314;
    request.first = 0x21222324;
    request.packing = 0x51525354;
    reply.magic = FRAME_REPLY_MAGIC;
    reply.status = -11;
    reply.id = request.id;
    reply.file = request.file;
    reply.first = request.first;
    reply.size = 0x3132333435363738;
    reply.digest = 0x4142434445464748;
    reply.replica = 0x6162636465666768;
    reply.ready = FRAME_READY;
    reply.packed = FRAME_IS_PACKED;
    memset(&reply.seal, 0x5a, sizeof(reply.seal));
    print_bytes("request", &request, sizeof(request));
    print_bytes("reply", &reply, sizeof(reply));
}

static void print_checksums(void)
{
    static const size_t lengths[] = {0,   1,   3,   8,   16,   17,   128,
                                     129, 240, 241, 512, 1024, 4099, BYTES_MAX};
    for (size_t i = 0; i < BYTES_MAX; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        printf("xxh3 %zu %016llx\n", lengths[i],
               (unsigned long long)xxh3(bytes, lengths[i], 0));
}

int main(void)
{
    printf("%s", monarch_layout());
    print_frames();
    print_checksums();
    return 0;
}
