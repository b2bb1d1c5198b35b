/* check.c - reads files whose words contain their offsets, and counts wrong bytes.
 *
 *     check order|random EPOCHS STOP FILE ...
 *
 * reads each file from its start to its end, or as many pieces at random places: so many
 * times, or until the file STOP exists if EPOCHS is 0. Prints "right BYTES", and "errno
 * NUMBER TIMES" for each error of a read; exit status 1 if a byte was wrong or missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "words.h"

enum { ERRORS = 200, PAUSE_US = 20000 };

static char room[BLOCK];
static uint64_t right_bytes, wrong_reads, errors[ERRORS], random_state = 1;

static uint64_t draw(uint64_t below)
{
    random_state += 0x9e3779b97f4a7c15u;
    return mix(random_state) % below;
}

/* judge - notes one read of n bytes at an offset; returns the bytes to advance. */
static ssize_t judge(const char *path, ssize_t count, off_t at, off_t size)
{
    struct word of = {(unsigned)strtoul(path + strlen(path) - 2, NULL, 10) + 1, 0, 0};
    if (count < 0) {
        errors[errno < ERRORS ? errno : 0]++;
        usleep(PAUSE_US);
        return BLOCK;
    }
    if (wrong_word(room, (size_t)count, at, of) >= 0 || (count == 0 && at < size)) {
        printf("WRONG: %s: %zd bytes at %lld\n", path, count, (long long)at);
        wrong_reads++;
    }
    right_bytes += (uint64_t)count;
    return count;
}

static void read_in_order(const char *path, int fd, off_t size)
{
    for (off_t at = 0; at < size;) {
        ssize_t count = judge(path, read(fd, room, BLOCK), at, size);
        if (count <= 0)
            return;
        at += count;
        lseek(fd, at, SEEK_SET); /* past the failed bytes */
    }
}

static void read_at_random(const char *path, int fd, off_t size)
{
    for (off_t done = 0; done < size; done += BLOCK) {
        off_t at = (off_t)draw((uint64_t)size);
        size_t n = 1 + draw(BLOCK);
        judge(path, pread(fd, room, n, at), at, size);
    }
}

static void read_one(const char *path, int in_order)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) {
        errors[errno]++;
        usleep(PAUSE_US);
    } else if (in_order) {
        read_in_order(path, fd, st.st_size);
    } else {
        read_at_random(path, fd, st.st_size);
    }
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    int in_order = strcmp(argv[1], "order") == 0, epochs = atoi(argv[2]);
    for (int i = 0; epochs ? i < epochs : access(argv[3], F_OK) != 0; i++)
        for (int j = 4; j < argc; j++)
            read_one(argv[j], in_order);
    printf("right %llu\n", (unsigned long long)right_bytes);
    for (int i = 0; i < ERRORS; i++)
        if (errors[i])
            printf("errno %d %llu\n", i, (unsigned long long)errors[i]);
    return wrong_reads != 0;
}
