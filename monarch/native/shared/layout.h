/* layout.h - the layout of every shared-memory segment of a job.
 *
 * A run directory (0700, one per user, job and node) holds five segments, each a file of
 * its own (0600) that starts with a struct segment:
 *
 *   catalog    frozen metadata and Replica states; the agent writes, programs map it read-only
 *   flags      one sticky "written" byte per File and directory; programs write
 *   requests   slots by which programs request Files, heartbeat of the agent
 *   counters   one slot per process, and the histogram of cold-open waits
 *   inodes     (tier, inode) -> File of staged and filling files; the agent writes
 *
 * If programs start before the Catalog exists, two more replace it until then:
 *
 *   outline    a catalog of the same roots without any name below them
 *   changes    its flags, and a table of the changes that programs make; programs write
 *
 * catalog = struct catalog | index block per root | states | prefixes | strings
 *
 * An index block describes one dataset root; it is position independent, and `monarch
 * index` saves exactly these bytes:
 *
 *   struct index | struct entry[] | struct slot[] by path | struct slot[] by inode
 *                | struct attr[] | u32 first_entry[file_count] | path arena
 *
 * Entries of names are sorted by path (bytes); entry 0 is the root itself, with the empty path.
 * In the arena each path ends in a NUL, and the names in a directory follow each other in the
 * order in which the origin lists them, because programs that do not sort depend on it. The
 * outer Entries and the hops follow those of names; no path finds them: see index.h.
 * Numbers: a File's number in the job is root.file_base + its number in the block. Each
 * directory has a mark too: root.dir_base + its number (entry.file of a directory).
 * All integers are little-endian and naturally aligned; offsets are in bytes from the
 * start of the structure that names them. Times are nanoseconds since the epoch.
 */
#ifndef MONARCH_LAYOUT_H
#define MONARCH_LAYOUT_H

#include <stdint.h>

#define LAYOUT_VERSION 16u
#define EXTENT_BYTES (8u << 20)
#define BLOCK_BYTES (256u << 10)
#define PAGE_BYTES (4u << 10)  /* unit of presence; the least that the kernel reads */
#define CHUNK_BYTES (1u << 20) /* unit of reads and of the chained checksum */

enum {
    ROOTS_MAX = 64,
    TIERS_MAX = 8,
    TIER_PATH_MAX = 192,
    PATH_BYTES_MAX = 1024, /* longer paths are opened at the origin */
    REPLICA_NAME_BYTES = 32,
    REQUEST_SLOTS = 1024,
    WAITER_COUNTS = 1024,
    PROCESS_SLOTS = 4096,
    PROCESS_NAME_BYTES = 128,
    WAIT_BUCKETS = 64,
    WAIT_SOURCES = 3,
    FILTER_NAMES_MAX = 32,
    FILTER_NAME_BYTES = 32,
    CHANGES_MAX = 8192,
    ELSEWHERE_MAX = 8,
    EXTENT_BLOCKS = 32,
    EXTENT_PAGES = 2048,
    BLOCK_PAGES = 64, /* bits of a word */
};

#define NONE32 0xffffffffu
#define FILE_SHARED 0x80000000u /* of another root, with its number in the job */

struct segment {
    char magic[8]; /* "MONARCH" and NUL */
    uint32_t version;
    uint32_t kind;       /* enum segment_kind */
    uint64_t length;     /* bytes of the whole segment */
    uint64_t generation; /* the same in all segments of one agent */
};

enum segment_kind {
    SEGMENT_CATALOG = 1,
    SEGMENT_FLAGS,
    SEGMENT_REQUESTS,
    SEGMENT_COUNTERS,
    SEGMENT_INODES,
    SEGMENT_INDEX,
};

/* ---- index block ---------------------------------------------------------------- */

struct index {
    struct segment seg; /* kind SEGMENT_INDEX, length = bytes of the block */
    uint64_t digest;    /* xxh3 of the block behind this struct */
    uint64_t
        identity; /* of all Files by number: equal for scans of an unchanged tree */
    uint64_t root_dev, root_ino;
    int64_t scanned_ns;
    uint32_t entry_count, file_count, dir_count, attr_count;
    uint32_t slot_count, inode_slot_count; /* open addressing, linear probing */
    uint32_t scan_euid;
    uint32_t scan_rights;             /* rights_mark() of the scan */
    uint32_t name_count, outer_count; /* hops follow these Entries */
    uint32_t holder_count, reserved;  /* hops that hold a target; 0 */
    uint64_t entries, slots, inode_slots, attrs, first_entry, arena; /* offsets */
    uint64_t arena_bytes;
};

struct entry { /* one cache line */
    uint64_t ino, size;
    int64_t mtime_ns, ctime_ns, atime_ns;
    uint64_t path;   /* arena offset << 16 | length of the root-relative path */
    uint32_t file;   /* number of a File or directory, FILE_SHARED, NONE32: unmanaged */
    uint32_t blocks; /* 512-byte blocks; NONE32: too many, see the origin */
    uint32_t attr;   /* index into attrs */
    /* Of a link: Entry that it resolves to, or NONE32. Of a directory: arena offset of the first
     * name in it, or NONE32: not all names in it are Entries. Of others: itself. */
    uint32_t target;
};

struct attr { /* shared by many Entries */
    uint32_t mode, uid, gid, nlink;
    uint64_t dev;
    uint32_t blksize;
    uint32_t readable; /* 1: access(R_OK) succeeded for index.scan_euid; 0: unknown */
};

struct slot {       /* home = high half of the hash, scaled to the number of slots */
    uint32_t tag;   /* low half of the hash */
    uint32_t entry; /* Entry + 1, 0 = empty */
};

/* Slots by path hold every Entry. Slots by inode hold the first Entry of each (device,
 * inode), whatever its type, and hash the inode alone: the device number of a root may
 * differ between nodes. They are at most 60% full, because most look-ups miss. */

/* ---- catalog -------------------------------------------------------------------- */

/* State word of a File, from its lowest bit: 4 bits enum replica_state; 4 the Tier; 4 enum reason
 * of an absent File, or enum source of a ready one; 19 the generation, incremented when a Transfer
 * begins; STATE_CONFIRMED. It is changed by compare-and-swap only. A program that has opened a
 * Replica reads it again: the same word means that the Replica existed all the time. */
enum replica_state {
    REPLICA_ABSENT = 0,
    REPLICA_STAGING,
    REPLICA_READY,
    REPLICA_EVICTING,
};

/* Why an absent File must not be requested; 0 = request it. */
enum reason {
    REASON_NONE = 0,
    REASON_NO_ROOM,  /* no Tier has room for it */
    REASON_CHANGED,  /* the origin differs from the Catalog */
    REASON_ERROR,    /* Transfers failed too often */
    REASON_MEMORY,   /* evicted to keep the job below its memory limit */
    REASON_STOPPING, /* the agent is ending */
    REASON_BUSY,     /* for now: no room in the pool, or the origin does not answer */
    REASON_DENIED,   /* the agent may not read the origin's file */
};

/* Source of the bytes of a ready File: distinguishes peer hits from misses. */
enum source {
    SOURCE_NONE = 0, /* the origin was read, or the Replica existed before the job */
    SOURCE_PEER,     /* a peer that had it ready when the request came */
    SOURCE_PACK,     /* a packed Tier of this node */
    SOURCE_SIBLING,  /* another job of this user on this node */
};

#define STATE_WORD(state, tier, reason) \
    ((uint32_t)(state) | (uint32_t)(tier) << 4 | (uint32_t)(reason) << 8)
#define STATE_OF(word) ((word)&0xfu)
#define STATE_TIER(word) (((word) >> 4) & 0xfu)
#define STATE_REASON(word) (((word) >> 8) & 0xfu)
#define STATE_SOURCE(word) STATE_REASON(word)
#define STATE_FIXED 0xfffu /* the bits that STATE_WORD() sets */
#define STATE_GENERATION 0x7ffff000u
#define STATE_CONFIRMED 0x80000000u /* sticky: compared with the origin in this job */

/* STATE_NEXT - the word that follows another one of the same generation. */
#define STATE_NEXT(word, state, tier, reason) \
    (((word) & ~STATE_FIXED) | STATE_WORD(state, tier, reason))
/* STATE_BEGIN - the word of a Transfer that begins: the next generation. */
#define STATE_BEGIN(word, tier)                                           \
    (((word)&STATE_CONFIRMED) |                                           \
     ((((word)&STATE_GENERATION) + STATE_FIXED + 1) & STATE_GENERATION) | \
     STATE_WORD(REPLICA_STAGING, tier, 0))

enum cold_mode {
    COLD_AUTO = 0, /* wait for Files up to wait_max_bytes, read through above */
    COLD_WAIT,
    COLD_THROUGH,
};

struct root {
    uint64_t dev, ino;  /* of the root directory; each process compares */
    uint64_t block;     /* offset of its index block */
    uint32_t file_base; /* number of its first File in states and flags */
    uint32_t dir_base;  /* number of its first directory in flags */
    uint64_t path;      /* strings offset << 16 | length: realpath, for origin reads */
    uint64_t path_hash; /* index_hash() of it: part of the names of Replicas */
    uint16_t unstable;  /* 1: files may change their inode numbers */
    uint16_t provisional; /* 1: the attributes of Files are those of an earlier job */
    uint16_t inside, chosen; /* 1: `links: inside`; 1: it holds some names only */
};

struct prefix {    /* a spelling of a root: as given, its realpath, its aliases */
    uint64_t path; /* strings offset << 16 | length, absolute, no trailing slash */
    uint32_t root;
    uint32_t reserved;
};

struct above {         /* a directory or link above a root, as the agent sees it */
    uint64_t dev, ino; /* ino 0: it may change; only the device is compared */
    uint32_t root;
    uint32_t reserved;
};

struct tier {
    uint64_t dev;
    uint32_t kind; /* 0 ram, 1 ssd */
    uint32_t path_bytes;
    char path[TIER_PATH_MAX]; /* directory of the Replicas, absolute, NUL-terminated */
};

struct catalog {
    struct segment seg; /* kind SEGMENT_CATALOG */
    uint64_t digest;    /* xxh3 over the identities of the index blocks */
    uint64_t file_count, dir_count;
    uint64_t states; /* offset of u32[file_count] */
    uint64_t prefixes, strings;
    uint64_t strings_bytes;
    uint32_t root_count, prefix_count, tier_count, filter_count;
    uint32_t cold_mode;    /* enum cold_mode */
    uint32_t inner_mounts; /* 1: catalogued names are mount points for the agent */
    uint64_t cold_wait_max_bytes;
    uint64_t cold_wait_max_whole_bytes; /* of Files that are waited for whole */
    uint64_t cold_timeout_ns;           /* of a wait without progress */
    uint64_t above;                     /* offset of struct above[above_count] */
    uint64_t above_count;
    struct root roots[ROOTS_MAX];
    struct tier tiers[TIERS_MAX];
    char filter[FILTER_NAMES_MAX]
               [FILTER_NAME_BYTES]; /* names of programs that are not served */
};

/* ---- flags ---------------------------------------------------------------------- */

struct flags {
    struct segment seg;
    uint64_t count;      /* file_count + dir_count of the catalog */
    uint32_t mounts;     /* incremented by each mount call of a program of the job */
    uint32_t marked;     /* 1: a mark below is set */
    uint32_t superseded; /* 1: the marks are no longer read: map the path again */
    uint32_t changes;    /* offset of the struct changes of an outline; else 0 */
    uint64_t opened;     /* offset of u8[file_count]: opens, modulo 256; or 0 */
    uint32_t hinted;     /* 1: programs count their opens there */
    uint32_t tick;       /* a coarse clock that the agent advances, see recency.h */
    uint64_t recency;  /* offset of u32[file_count]: the tick of the last open; or 0 */
    uint64_t presence; /* offset of the struct presence; or 0 */
    /* Offset of u8[file_count], or 0: WHOLE_..., written by the agent; programs write the last. */
    uint64_t whole;
    uint64_t checked; /* offset of u32[dir_count]: CHECKED_... of each directory */
    uint8_t roots[ROOTS_MAX]; /* 1: this whole root passes through */
    uint8_t written[];        /* sticky bits; Files first, then directories */
};

enum {
    WHOLE_FORMAT = 1, /* usually mapped: it is held whole or not at all */
    WHOLE_NAMED,      /* by the configuration: opens wait, too */
    WHOLE_MAPPED,     /* a program has mapped it at the origin: the same */
};

/* Presence of the Files that are too large to wait for, written by the agent. */
struct presence {
    uint64_t count;   /* such Files */
    uint64_t files;   /* u32[count]: their numbers, ascending */
    uint64_t first;   /* u64[count + 1]: the first Extent of each, and the end */
    uint64_t parts;   /* struct part[count] */
    uint64_t words;   /* u64[EXTENT_BLOCKS] per Extent: one bit per present Page */
    uint64_t changes; /* u32[] per Extent: futex, incremented at each change */
    uint64_t places;  /* u8[] per Extent: a Tier's number, or PLACE_... */
    uint64_t packed;  /* u8[] per Extent: the packed Tier that holds it, plus 1; or 0 */
};

enum {
    PLACE_FILE = 0x80, /* a bit: it is a file of its own, see presence_extent_name() */
    PLACE_ORIGIN = 0x7e, /* no node keeps it */
    PLACE_NONE = 0x7f,
};

struct part {
    /* Low half: 1 and the generation of the state word by which the File is staged; high half:
     * incremented with each partial Replica. 0: none. */
    uint64_t replica;
    uint32_t failures; /* Pages that could not be copied: programs read the origin */
    /* 0: all of it will be in one Tier, and READY in the end. Else it is held in pieces: changed
     * when a piece is given up; PIECES_PACKED: in packed Tiers; PIECES_STAY: no room for all. */
    uint32_t pieces;
};

#define PIECES_PACKED 0x80000000u
#define PIECES_STAY 0x40000000u

/* When a directory last matched the Catalog: units of CLOCK_MONOTONIC since the boot, modulo
 * CHECKED_TIMES; bits from CHECKED_TIMES on are permanent. */
enum {
    CHECKED_NEVER = 0,
    CHECKED_UNIT_BITS = 26, /* of a nanosecond count: a unit is 67 ms */
    CHECKED_UNITS = 15,     /* it is not checked again for so long: about a second */
};
#define CHECKED_EXACT 0x80000000u /* names differ if their letters differ in case */
#define CHECKED_STALE 0x40000000u /* it has changed since the scan */
#define CHECKED_TIMES 0x40000000u

enum { /* bits of a mark; all of them if the change is unknown */
       MARKED = 1,
       MARKED_BYTES = 2, /* its contents */
       MARKED_NAME = 4,  /* one of its names: a new file may have its inode number */
       MARKED_FREED = 8, /* its last name: its inode number may be reused */
       MARKED_ALL = MARKED | MARKED_BYTES | MARKED_NAME | MARKED_FREED,
};

/* ---- requests ------------------------------------------------------------------- */

enum agent_state {
    AGENT_STARTING = 0,
    AGENT_READY, /* the catalog is published */
    AGENT_PLAIN, /* there will be no catalog: programs run unstaged */
    AGENT_ENDING,
    AGENT_SCANNING, /* programs start with the outline, the catalog comes later */
};

/* Whether programs that have mapped the outline find a Catalog now. */
enum catalog_state {
    CATALOG_NONE = 0,
    CATALOG_SETTLING, /* for marks only: some of those of the outline are missing in it */
    CATALOG_SERVED,
};

/* Capabilities that override the mode of a file. */
enum {
    RIGHT_OVERRIDE = 1, /* CAP_DAC_OVERRIDE */
    RIGHT_SEARCH = 2,   /* CAP_DAC_READ_SEARCH */
};

struct rights { /* of a process, and its namespaces; see rights.c */
    uint32_t euid, egid;
    uint32_t caps; /* RIGHT_..., all that are in effect */
    uint32_t group_count;
    uint64_t groups_digest;             /* of the supplementary groups, in any order */
    uint64_t mount_ns, user_ns, pid_ns; /* inodes of the namespaces; 0: unknown */
    uint64_t root_ino, root_mount;      /* of "/", see chroot(2); mount 0: unknown */
};

struct requests {
    struct segment seg;
    uint32_t agent_state; /* futex; enum agent_state */
    uint32_t agent_pid;
    uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, written every 100 ms */
    uint32_t bell;         /* futex of the listening thread; each ring adds one */
    uint32_t pool_full;    /* 1: ring also when a waiter has opened its Replica */
    uint32_t catalog;      /* enum catalog_state */
    /* Futex of the idle copying threads. 1: one of them was called, and no thread has looked for
     * work since. A program that has filled a slot and finds 0 wakes one or, if none is idle, rings
     * the bell. */
    uint32_t called;
    uint32_t alone; /* 1: small reads may bypass the agent; see read_through.c */
    uint8_t pad[64 - 36];
    struct rights agent; /* rights of the scan and of copies */
    /* By File number modulo WAITER_COUNTS: opens that wait for a Replica, or have been woken and
     * have not opened it yet. The Pool keeps a Replica with waiters. */
    uint32_t waiters[WAITER_COUNTS];
    /* File number + 1, or Pages, see presence.h; 0 = free; emptied atomically. */
    uint64_t slots[REQUEST_SLOTS];
    /* By File number modulo WAITER_COUNTS: File number + 1, and in the lower half the progress of
     * its Transfer (progress.h). The data plane writes. */
    uint64_t progress[WAITER_COUNTS];
};

/* ---- counters ------------------------------------------------------------------- */

enum counter {
#define COUNTER(name, unit, text) COUNTER_##name,
#include "counter_names.def"
#undef COUNTER
    COUNTER_COUNT
};

enum process_state {
    PROCESS_FREE = 0,
    PROCESS_CLAIMED,  /* being filled in */
    PROCESS_LAUNCHED, /* started by a hooked exec or spawn; its Shim is not active yet */
    PROCESS_ACTIVE,   /* its Shim is active */
    PROCESS_LAUNCHER, /* a `monarch run` before exec, or one that waits */
};

/* Kinds of waits of a program: for a File from the origin or from a peer, or Pages of one. */
enum wait_source {
    WAIT_ORIGIN,
    WAIT_PEER,
    WAIT_BLOCKS,
};

struct process { /* claimed by compare-and-swap on state, freed by the agent alone */
    uint32_t state;
    uint32_t pid;
    uint64_t starttime;            /* field 22 of /proc/PID/stat; 0 = unknown */
    char name[PROCESS_NAME_BYTES]; /* path of the program, or the end of it */
    uint64_t counters[COUNTER_COUNT];
};

struct elsewhere { /* a File that was opened by an unknown path */
    uint64_t dev, ino;
    uint32_t bytes; /* of the path; written last, 0: not yet */
    uint32_t reserved;
    char path[PATH_BYTES_MAX]; /* absolute, as the program had it */
};

struct counters {
    struct segment seg;
    uint32_t slots_used_max; /* slots at or above were never claimed */
    uint32_t ended_status;   /* 1 + exit code of a program; 0 = none has ended */
    uint64_t slots_full;     /* processes that share slot 0 */
    /* by enum wait_source; bucket = wait_bucket(ns) */
    uint64_t wait_buckets[WAIT_SOURCES * WAIT_BUCKETS];
    uint64_t wait_total_ns[WAIT_SOURCES];
    uint32_t elsewhere_taken; /* claims of the places below; may exceed their number */
    uint32_t elsewhere_reserved;
    struct elsewhere elsewhere[ELSEWHERE_MAX];
    struct process process[PROCESS_SLOTS];
};

/* ---- inodes --------------------------------------------------------------------- */

struct inode {    /* written: file, then ino with release */
    uint64_t ino; /* 0 = never used, 1 = removed */
    uint32_t file;
    uint32_t tier; /* number of the Tier, and INODE_KEPT */
};

/* The Replica was removed, but programs may have it open: the inode stays until its
 * slot is needed. */
#define INODE_KEPT 0x80000000u

struct inodes {
    struct segment seg;
    uint64_t slot_count;
    uint64_t used, kept; /* slots with an inode; those with INODE_KEPT */
    uint64_t hand;       /* where the search for a kept inode continues */
    struct inode slots[];
};

_Static_assert(sizeof(struct segment) == 32, "segment");
_Static_assert(sizeof(struct entry) == 64, "entry is one cache line");
_Static_assert(sizeof(struct attr) == 32, "attr");
_Static_assert(sizeof(struct slot) == 8, "slot");
_Static_assert(sizeof(struct inode) == 16, "inode");
_Static_assert(sizeof(struct rights) == 64, "rights");
_Static_assert(sizeof(struct requests) ==
                   32 + 128 + 12 * WAITER_COUNTS + 8 * REQUEST_SLOTS,
               "requests");

#endif
