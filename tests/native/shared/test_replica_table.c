/* test_replica_table.c - Replica names represent identities; the inode table finds
 * Files while another thread inserts; process slots are taken once. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "counters.h"
#include "catalog.h"
#include "replica_table.h"

enum { INODES = 4096, CLAIMERS = 8, CLAIMS = 400 };

static struct inodes *table;
static struct counters all;

static void names_differ_when_any_part_of_the_identity_differs(void)
{
    const struct entry base = {.ino = 1, .size = 2, .mtime_ns = 3, .ctime_ns = 4};
    struct entry other[6] = {base, base, base, base, base, base};
    char first[REPLICA_NAME_BYTES], name[REPLICA_NAME_BYTES];
    other[0].ino++;
    other[1].size++;
    other[2].mtime_ns++;
    other[3].ctime_ns++;
    replica_name(&base, 7, 99, first);
    for (int i = 0; i < 6; i++) {
        replica_name(&other[i], i == 5 ? 8 : 7, i == 4 ? 98 : 99, name);
        CHECK(memcmp(first, name, sizeof(name)) != 0);
    }
    replica_name(&base, 7, 99, name);
    CHECK(memcmp(first, name, sizeof(name)) == 0);
}

static void *insert_all(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < INODES; i++)
        CHECK(replica_insert(table, i % 3, 1000 + i, i) == 0);
    return NULL;
}

static void finds_right_files_while_others_are_inserted(void)
{
    size_t bytes = sizeof(*table) + (INODES + INODES / 2) * sizeof(struct inode);
    table = calloc(1, bytes);
    CHECK(table);
    table->slot_count = INODES + INODES / 2;
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, insert_all, NULL) == 0);
    for (int round = 0; round < 200; round++)
        for (uint32_t i = 0; i < INODES; i += 37) {
            int64_t found = replica_find(table, i % 3, 1000 + i);
            CHECK(found == -1 || found == i);
        }
    pthread_join(writer, NULL);
    for (uint32_t i = 0; i < INODES; i++) {
        CHECK(replica_find(table, i % 3, 1000 + i) == i);
        CHECK(replica_find(table, (i + 1) % 3, 1000 + i) == -1);
    }
    CHECK(replica_insert(table, 1, 1001, 77) == 0);
    CHECK(replica_find(table, 1, 1001) == 77);
    free(table);
}

/* Slots of evicted Replicas are reused: staging and evicting can continue for ever. */
static void removed_slots_are_used_again(void)
{
    enum { SLOTS = 64, LIVE = 40 };
    table = calloc(1, sizeof(*table) + SLOTS * sizeof(struct inode));
    CHECK(table);
    table->slot_count = SLOTS;
    for (uint64_t ino = 2; ino < 5000; ino++) {
        CHECK(replica_insert(table, 0, ino, (uint32_t)ino) == 0);
        for (int i = 0; ino > LIVE && i < SLOTS; i++)
            if (table->slots[i].ino == ino - LIVE)
                table->slots[i].ino = 1;
        CHECK(replica_find(table, 0, ino) == (int64_t)ino);
        CHECK(ino <= LIVE || replica_find(table, 0, ino - LIVE) == -1);
    }
    free(table);
}

static bool is_free(const struct inodes *t)
{
    for (uint64_t i = 0; i < t->slot_count; i++)
        if (t->slots[i].ino != 0)
            return false;
    return true;
}

/* Replicas that come and go leave no slots that lookups of other files must pass. */
static void an_emptied_table_is_as_new(void)
{
    enum { SLOTS = 64, LIVE = 61 }; /* a prime: each step visits all */
    table = calloc(1, sizeof(*table) + SLOTS * sizeof(struct inode));
    CHECK(table);
    table->slot_count = SLOTS;
    for (uint64_t step = 1; step < LIVE; step++) {
        const uint64_t base = 1000 * step;
        for (uint64_t i = 0; i < LIVE; i++)
            CHECK(replica_insert(table, 0, base + i, (uint32_t)i) == 0);
        for (uint64_t i = 0; i < LIVE; i++) {
            replica_remove(table, 0, base + i * step % LIVE);
            CHECK(replica_find(table, 0, base + i * step % LIVE) == -1);
            for (uint64_t j = i + 1; j < LIVE; j++)
                CHECK(replica_find(table, 0, base + j * step % LIVE) ==
                      (int64_t)(j * step % LIVE));
        }
        CHECK(is_free(table));
    }
    free(table);
}

/* An evicted Replica may be open: it is remembered until present Replicas, or later
 * evicted ones, need its space. */
static void what_has_gone_is_known_as_long_as_there_is_room(void)
{
    enum { SLOTS = 130, THERE = 60, ROOM = 120 };
    table = calloc(1, sizeof(*table) + SLOTS * sizeof(struct inode));
    CHECK(table);
    table->slot_count = SLOTS;
    for (uint64_t ino = 2; ino < 600; ino++) {
        CHECK(replica_insert(table, 0, ino, (uint32_t)ino) == 0);
        if (ino >= 2 + THERE)
            replica_keep(table, 0, ino - THERE);
        for (uint64_t there = ino < 2 + THERE ? 2 : ino - THERE + 1; there <= ino;
             there++)
            CHECK(replica_find(table, 0, there) == (int64_t)there);
        uint64_t known = 0;
        for (uint64_t i = 2; i <= ino; i++)
            known += replica_find(table, 0, i) == (int64_t)i;
        CHECK(known == (ino - 1 < ROOM ? ino - 1 : ROOM));
    }
    CHECK(replica_insert(table, 0, 599 - THERE, 7) == 0); /* it is present again */
    CHECK(replica_find(table, 0, 599 - THERE) == 7);
    replica_remove(table, 0, 599 - THERE);
    CHECK(replica_find(table, 0, 599 - THERE) == -1);
    CHECK(table->used - table->kept == THERE);
    free(table);
}

static void *claim_many(void *base)
{
    for (uint32_t i = 0; i < CLAIMS; i++)
        CHECK(process_claim(&all, *(uint32_t *)base + i, PROCESS_ACTIVE, "/bin/x"));
    return NULL;
}

static void a_slot_is_taken_once(void)
{
    pthread_t threads[CLAIMERS];
    uint32_t bases[CLAIMERS];
    for (uint32_t t = 0; t < CLAIMERS; t++) {
        bases[t] = 1000 * (t + 1);
        CHECK(pthread_create(&threads[t], NULL, claim_many, &bases[t]) == 0);
    }
    for (int t = 0; t < CLAIMERS; t++)
        pthread_join(threads[t], NULL);
    for (uint32_t t = 0; t < CLAIMERS; t++)
        for (uint32_t i = 0; i < CLAIMS; i++) {
            struct process *p = process_of(&all, bases[t] + i);
            CHECK(p && p->pid == bases[t] + i && strcmp(p->name, "/bin/x") == 0);
        }
    CHECK(all.slots_full == 0);
}

static void late_processes_share_slot_zero_and_long_names_keep_their_end(void)
{
    char name[300];
    memset(name, 'a', sizeof(name) - 1);
    strcpy(name + 290, "/train.py");
    struct process *p = process_claim(&all, 5, PROCESS_ACTIVE, name);
    CHECK(strlen(p->name) == PROCESS_NAME_BYTES - 1);
    CHECK(strcmp(p->name + PROCESS_NAME_BYTES - 1 - 9, "/train.py") == 0);
    for (uint32_t i = 0; i < PROCESS_SLOTS; i++)
        p = process_claim(&all, 100000 + i, PROCESS_ACTIVE, NULL);
    CHECK(p == &all.process[0] && all.slots_full > 0);
}

static void waits_fall_into_growing_buckets(void)
{
    CHECK(wait_bucket(0) == 0 && wait_bucket(1024) == 0 && wait_bucket(1536) == 1);
    CHECK(wait_bucket(2048) == 2 && wait_bucket(UINT64_MAX) == WAIT_BUCKETS - 1);
    for (uint64_t ns = 1; ns < 1ull << 40; ns += ns / 3 + 1)
        CHECK(wait_bucket(ns) <= wait_bucket(ns + ns / 3 + 1));
}

int main(void)
{
    names_differ_when_any_part_of_the_identity_differs();
    finds_right_files_while_others_are_inserted();
    removed_slots_are_used_again();
    an_emptied_table_is_as_new();
    what_has_gone_is_known_as_long_as_there_is_room();
    a_slot_is_taken_once();
    late_processes_share_slot_zero_and_long_names_keep_their_end();
    waits_fall_into_growing_buckets();
    return 0;
}
