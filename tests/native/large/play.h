/* play.h - one random sequence of operations: its state, choices and output. */
#ifndef LARGE_PLAY_H
#define LARGE_PLAY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "words.h"

enum {
    FILES_MAX = 16,
    SIZES_MAX = 24,
    PATH_BYTES = 512,
    SLOTS = 64,         /* descriptors are held below this number */
    KEPT_FROM = 200,    /* the campaign's own are kept above this one */
    ROOM = 4 << 20,     /* of the buffer that is read into */
    READ_MAX = 3 << 20, /* of one read */
    LINE_BYTES = 1024,
    UNTOUCHED = 77, /* errno before a call: a success does not change it */
};

/* A file of the dataset, in memory that all processes share. */
struct file {
    unsigned number;  /* as in its words */
    unsigned version; /* the latest of any of its words */
    unsigned changes; /* of it; a descriptor that was opened before one is stale */
    int doubtful;     /* changed where nothing can have seen it */
    int is_mutable;
    unsigned sizes_count;
    off_t sizes[SIZES_MAX]; /* all sizes so far; the last one is the current one */
    char path[PATH_BYTES];
};

enum kind { NOTHING, FILE_READ, FILE_NO_READ, PIPE, FOLDER };

/* The target of a descriptor number. */
struct slot {
    enum kind kind;
    int file;
    unsigned changes; /* the file's, when it was opened */
};

extern struct file *files; /* `file_count` of them */
extern int file_count;
extern int folder_fd;
extern int is_memory; /* whether Tiers are in memory: disks refuse more */
extern struct slot slots[SLOTS];
extern char room[ROOM]; /* the bytes behind it are inaccessible */

uint64_t draw(uint64_t below);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_nothing(void);
void say_result(long result);
void say_bytes(const char *bytes, ssize_t count);

/* drawing.c: random choices of a sequence */
int some_slot(enum kind kind);
int some_file(int only_mutable);
off_t some_place(off_t size);
size_t some_size(void);
int is_stale(int fd);
off_t size_of(const struct file *file);
struct word model_of(const struct file *file);

/* opens.c, reads.c, faults.c, changes.c: the operations */
void op_open(void);
void op_odd_open(void);
void op_dup(void);
void op_reopen(void);
void op_close(void);
void op_reuse(void);
void op_read(void);
void op_seek(void);
void op_move(void);
void op_exec(void);
void op_map(void);
void op_ask(void);
void op_free_to_differ(void);
void op_bad_buffer(void);
void op_bad_call(void);
void op_torn_buffer(void);
void op_change(void);
void op_change_during(void);
void judge_stale(int fd);

/* signals.c: a handler that reads while the sequence does */
void begin_signals(void);
void end_signals(void);
int wait_for(int child);

/* forks.c: a second process with the same descriptors */
void op_fork(void);
void op_join(void);
int is_child(void);
int pass_on(void (*run)(uint64_t), uint64_t seed);

#endif
