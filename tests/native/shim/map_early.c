/* map_early.c - maps a file before all constructors, in one, and in main().
 *
 *   map_early FILE
 *
 * Prints for each mapping whether it shows the file's bytes, by mmap() and by mmap64(), and
 * on standard error the number of mappings of the file itself. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAPPINGS = 6, PIECE_BYTES = 1 << 16 };

static const char *mapped[MAPPINGS];
static size_t count, length;
static char piece[PIECE_BYTES];

static void map(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) != 0)
        _exit(9);
    length = (size_t)st.st_size;
    mapped[count++] = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
    mapped[count++] = mmap64(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
}

static void before_all(int argc, char **argv, char **envp)
{
    (void)argc, (void)envp;
    map(argv[1]);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(int, char **, char **) = before_all;

__attribute__((constructor(101))) static void early(int argc, char **argv, char **envp)
{
    before_all(argc, argv, envp);
}

static int same(const char *at, int fd)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = pread(fd, piece, sizeof(piece), (off_t)done);
        if (n <= 0 || memcmp(at + done, piece, (size_t)n) != 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int lines_with(const char *path)
{
    char line[8192];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found += strstr(line, path) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int main(int argc, char **argv)
{
    map(argv[argc - 1]);
    int fd = open(argv[1], O_RDONLY);
    for (size_t i = 0; i < count; i++)
        printf("%d\n", mapped[i] != MAP_FAILED && same(mapped[i], fd));
    fprintf(stderr, "%d\n", lines_with(argv[1]));
    close(fd);
    return 0;
}
