/* read_fopen.c - prints the size and a hash of each named file, read with fopen. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

/* hash_stream - FNV-1a of the rest of a stream; also returns its length. */
static uint64_t hash_stream(FILE *file, uint64_t *length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    int byte;

    while ((byte = getc(file)) != EOF) {
        hash = (hash ^ (uint64_t)byte) * 0x100000001b3u;
        ++*length;
    }
    return hash;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        uint64_t length = 0;
        struct stat by_path;
        FILE *file = fopen(argv[i], "rb");

        if (!file || stat(argv[i], &by_path) < 0) {
            perror(argv[i]);
            return 1;
        }
        printf("%s %016" PRIx64, argv[i], hash_stream(file, &length));
        printf(" %" PRIu64 " %jd\n", length, (intmax_t)by_path.st_size);
        if (!freopen(argv[i], "rb", file)) {
            perror(argv[i]);
            return 1;
        }
        length = 0;
        printf("again %016" PRIx64 "\n", hash_stream(file, &length));
        fclose(file);
    }
    return 0;
}
