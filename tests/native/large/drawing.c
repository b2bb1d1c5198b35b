/* drawing.c - random choices of a sequence: descriptors, files, offsets and sizes. */
#include <stdint.h>

#include "play.h"

/* some_slot - a descriptor that holds this; -1 if none does. */
int some_slot(enum kind kind)
{
    int found[SLOTS], count = 0;
    for (int fd = 0; fd < SLOTS; fd++)
        if (slots[fd].kind == kind)
            found[count++] = fd;
    return count ? found[draw((uint64_t)count)] : -1;
}

/* some_file - the number of a file; some are drawn more often. */
int some_file(int only_mutable)
{
    for (;;) {
        uint64_t below = (uint64_t)file_count;
        int one = (int)(draw(2) ? draw(below) : draw((below + 1) / 2));
        if (!only_mutable || files[one].is_mutable)
            return one;
    }
}

/* size_of - the current size of a file. */
off_t size_of(const struct file *file)
{
    return file->sizes[file->sizes_count - 1];
}

/* model_of - its possible words. */
struct word model_of(const struct file *file)
{
    return (struct word){file->number, file->version, file->sizes_count > 1};
}

/* is_stale - whether a descriptor may show the contents before a change. */
int is_stale(int fd)
{
    const struct file *file = &files[slots[fd].file];
    return file->doubtful || file->changes != slots[fd].changes;
}

/* some_place - an offset: usually near a border. */
off_t some_place(off_t size)
{
    off_t near = (off_t)draw(41) - 20;
    uint64_t end = (uint64_t)size + 1;
    switch (draw(10)) {
    case 0:
        return (off_t)draw(64);
    case 1:
    case 2:
        return (off_t)(draw(end) / BLOCK * BLOCK) + near;
    case 3:
    case 4:
        return (off_t)((draw(end) / EXTENT + 1) * EXTENT) + near;
    case 5:
        return size + near;
    case 6:
        return (off_t)((draw(end) / EXTENT + 1) * EXTENT) - (off_t)some_size();
    default:
        return (off_t)draw(end);
    }
}

/* some_size - of a read: many are small, few of several Blocks. */
size_t some_size(void)
{
    switch (draw(12)) {
    case 0:
        return 0;
    case 1:
    case 2:
        return 1 + draw(40);
    case 3:
    case 4:
    case 5:
        return 1 + draw(9000);
    case 6:
    case 7:
        return 4096 << draw(6);
    case 8:
        return BLOCK - 20 + draw(41);
    case 9:
        return BLOCK + draw(2 * BLOCK);
    case 10:
        return draw(4) ? 1 + draw(BLOCK) : 1 + draw(READ_MAX);
    default:
        return 1 + draw(70000);
    }
}
