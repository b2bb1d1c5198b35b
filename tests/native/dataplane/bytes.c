/* bytes.c - the bytes of a board's Files: at the origin, in copies and in memory. */
#include "board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Only one thread has these bytes. Watching each would take most of the time of a build
 * that finds data races; the calls that transfer them are watched. */
#define UNWATCHED __attribute__((no_sanitize("thread")))

UNWATCHED static uint8_t pattern(uint32_t file, uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 20) + file);
}

UNWATCHED static void fill(uint32_t file, uint64_t at, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = pattern(file, at + i);
}

/* bytes_right - some bytes are those of a File from an offset on. */
UNWATCHED bool bytes_right(uint32_t file, uint64_t at, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != pattern(file, at + i))
            return false;
    return true;
}

/* board_write_origin - creates a File with its size in the board. */
void board_write_origin(const struct board *b, uint32_t file)
{
    char path[512];
    static uint8_t bytes[1 << 16];
    board_origin_path(b, file, path);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0);
    for (uint64_t at = 0; at < b->sizes[file];) {
        uint64_t left = b->sizes[file] - at;
        size_t n = left < sizeof(bytes) ? left : sizeof(bytes);
        fill(file, at, bytes, n);
        CHECK(write(fd, bytes, n) == (ssize_t)n);
        at += n;
    }
    close(fd);
}

/* board_cached_pages - the number of pages of a File's origin in memory. */
size_t board_cached_pages(const struct board *b, uint32_t file)
{
    char path[512];
    size_t n = (b->sizes[file] + 4095) / 4096, found = 0;
    unsigned char *pages = malloc(n);
    board_origin_path(b, file, path);
    int fd = open(path, O_RDONLY);
    void *map = mmap(NULL, b->sizes[file], PROT_READ, MAP_SHARED, fd, 0);
    CHECK(pages && fd >= 0 && map != MAP_FAILED);
    CHECK(mincore(map, b->sizes[file], pages) == 0);
    for (size_t i = 0; i < n; i++)
        found += pages[i] & 1;
    munmap(map, b->sizes[file]);
    close(fd);
    free(pages);
    return found;
}

/* board_forget_pages - drops them; false: the file system keeps them. */
bool board_forget_pages(const struct board *b, uint32_t file)
{
    char path[512];
    board_origin_path(b, file, path);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && fsync(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    close(fd);
    return board_cached_pages(b, file) == 0;
}

/* range_right - bytes of a Replica, BLOCK_BYTES at most, are those of the origin. */
static bool range_right(const struct board *b, uint32_t file, uint64_t at, size_t most)
{
    static _Thread_local uint8_t bytes[BLOCK_BYTES];
    char path[512];
    uint64_t left = b->sizes[file] - at;
    ssize_t n = (ssize_t)(left < most ? left : most);
    board_replica_path(b, file, path);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, bytes, (size_t)n, (off_t)at) == n);
    close(fd);
    return bytes_right(file, at, bytes, (size_t)n);
}

/* board_block_right - the bytes of a Block that is present are those of the origin. */
bool board_block_right(const struct board *b, uint32_t file, uint32_t block)
{
    return range_right(b, file, (uint64_t)block * BLOCK_BYTES, BLOCK_BYTES);
}

/* board_page_right - the same of a Page. */
bool board_page_right(const struct board *b, uint32_t file, uint32_t page)
{
    return range_right(b, file, (uint64_t)page * PAGE_BYTES, PAGE_BYTES);
}
