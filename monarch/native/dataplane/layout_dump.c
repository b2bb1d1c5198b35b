/* layout_dump.c - the shared structures and enums as a text, from which Python builds its
 * own views: no layout is written twice.
 *
 * One line per fact, words separated by one blank:
 *
 *   struct NAME BYTES
 *   field STRUCT NAME OFFSET BYTES KIND     KIND: u1 u2 u4 u8 i4 i8 p8 S<bytes> or a struct
 *   enum NAME MEMBER VALUE
 *   constant NAME VALUE
 *   counter NAME UNIT TEXT...               in the order of their numbers
 *
 * A field whose BYTES are a multiple of its KIND's is an array; a flexible one has 0.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "dataplane/wire.h"
#include "dataplane/api.h"
#include "shared/layout.h"

enum { TEXT_BYTES_MAX = 24 << 10 };

struct row {
    const char *line; /* first word of the line */
    const char *owner, *name, *kind;
    uint64_t value, bytes;
};

#define MEMBER_OF(s, f) (((struct s *)0)->f)

/* Arrays decay to pointers here, so that each has the kind of its items. */
#define KIND(x) \
    _Generic((x), \
        uint8_t: "u1", \
        uint16_t: "u2", \
        uint32_t: "u4", \
        uint64_t: "u8", \
        int32_t: "i4", \
        int64_t: "i8", \
        char *: "S1", \
        char(*)[FILTER_NAME_BYTES]: "S32", \
        uint8_t *: "u1", \
        uint64_t *: "u8", \
        void *: "p8", \
        const uint64_t *: "p8", \
        struct segment: "segment", \
        struct monarch_seal: "monarch_seal", \
        struct root *: "root", \
        struct tier *: "tier", \
        struct process *: "process", \
        struct inode *: "inode", \
        struct rights: "rights")

_Static_assert(FILTER_NAME_BYTES == 32, "the kind of filter says S32");

#define STRUCT(s)                                     \
    {                                                 \
        "struct", #s, NULL, NULL, 0, sizeof(struct s) \
    }
#define TAIL(s, f)                                                       \
    {                                                                    \
        "field", #s, #f, KIND(MEMBER_OF(s, f)), offsetof(struct s, f), 0 \
    }
#define POINTER(s, f)                                                \
    {                                                                \
        "field", #s, #f, "p8", offsetof(struct s, f), sizeof(void *) \
    }
#define FIELD(s, f)                                                    \
    {                                                                  \
        "field", #s, #f, KIND(MEMBER_OF(s, f)), offsetof(struct s, f), \
            sizeof(MEMBER_OF(s, f))                                    \
    }
#define MEMBER(e, m)               \
    {                              \
        "enum", #e, #m, NULL, m, 0 \
    }
#define CONSTANT(c)                      \
    {                                    \
        "constant", NULL, #c, NULL, c, 0 \
    }

static const struct row rows[] = {
    STRUCT(segment),
    FIELD(segment, magic),
    FIELD(segment, version),
    FIELD(segment, kind),
    FIELD(segment, length),
    FIELD(segment, generation),

    STRUCT(index),
    FIELD(index, seg),
    FIELD(index, digest),
    FIELD(index, identity),
    FIELD(index, root_dev),
    FIELD(index, root_ino),
    FIELD(index, scanned_ns),
    FIELD(index, entry_count),
    FIELD(index, file_count),
    FIELD(index, dir_count),
    FIELD(index, attr_count),
    FIELD(index, slot_count),
    FIELD(index, inode_slot_count),
    FIELD(index, scan_euid),
    FIELD(index, scan_rights),
    FIELD(index, entries),
    FIELD(index, slots),
    FIELD(index, inode_slots),
    FIELD(index, attrs),
    FIELD(index, first_entry),
    FIELD(index, arena),
    FIELD(index, arena_bytes),

    STRUCT(entry),
    FIELD(entry, ino),
    FIELD(entry, size),
    FIELD(entry, mtime_ns),
    FIELD(entry, ctime_ns),
    FIELD(entry, atime_ns),
    FIELD(entry, path),
    FIELD(entry, file),
    FIELD(entry, blocks),
    FIELD(entry, attr),
    FIELD(entry, target),

    STRUCT(attr),
    FIELD(attr, mode),
    FIELD(attr, uid),
    FIELD(attr, gid),
    FIELD(attr, nlink),
    FIELD(attr, dev),
    FIELD(attr, blksize),
    FIELD(attr, readable),

    STRUCT(slot),
    FIELD(slot, tag),
    FIELD(slot, entry),

    STRUCT(root),
    FIELD(root, dev),
    FIELD(root, ino),
    FIELD(root, block),
    FIELD(root, file_base),
    FIELD(root, dir_base),
    FIELD(root, path),
    FIELD(root, path_hash),
    FIELD(root, unstable),
    FIELD(root, reserved),

    STRUCT(prefix),
    FIELD(prefix, path),
    FIELD(prefix, root),
    FIELD(prefix, reserved),

    STRUCT(tier),
    FIELD(tier, dev),
    FIELD(tier, kind),
    FIELD(tier, path_bytes),
    FIELD(tier, path),

    STRUCT(catalog),
    FIELD(catalog, seg),
    FIELD(catalog, digest),
    FIELD(catalog, file_count),
    FIELD(catalog, dir_count),
    FIELD(catalog, states),
    FIELD(catalog, prefixes),
    FIELD(catalog, strings),
    FIELD(catalog, strings_bytes),
    FIELD(catalog, root_count),
    FIELD(catalog, prefix_count),
    FIELD(catalog, tier_count),
    FIELD(catalog, filter_count),
    FIELD(catalog, cold_mode),
    FIELD(catalog, inner_mounts),
    FIELD(catalog, cold_wait_max_bytes),
    FIELD(catalog, cold_timeout_ns),
    FIELD(catalog, roots),
    FIELD(catalog, tiers),
    FIELD(catalog, filter),

    STRUCT(flags),
    FIELD(flags, seg),
    FIELD(flags, count),
    FIELD(flags, mounts),
    FIELD(flags, marked),
    FIELD(flags, superseded),
    FIELD(flags, reserved),
    FIELD(flags, roots),
    TAIL(flags, written),

    STRUCT(rights),
    FIELD(rights, euid),
    FIELD(rights, egid),
    FIELD(rights, caps),
    FIELD(rights, group_count),
    FIELD(rights, groups_digest),
    FIELD(rights, mount_ns),
    FIELD(rights, user_ns),
    FIELD(rights, pid_ns),
    FIELD(rights, root_ino),
    FIELD(rights, root_mount),

    STRUCT(requests),
    FIELD(requests, seg),
    FIELD(requests, agent_state),
    FIELD(requests, agent_pid),
    FIELD(requests, heartbeat_ns),
    FIELD(requests, bell),
    FIELD(requests, reserved),
    FIELD(requests, pad),
    FIELD(requests, agent),
    FIELD(requests, slots),

    STRUCT(process),
    FIELD(process, state),
    FIELD(process, pid),
    FIELD(process, starttime),
    FIELD(process, name),
    FIELD(process, counters),

    STRUCT(counters),
    FIELD(counters, seg),
    FIELD(counters, slots_used_max),
    FIELD(counters, reserved),
    FIELD(counters, slots_full),
    FIELD(counters, wait_buckets),
    FIELD(counters, wait_total_ns),
    FIELD(counters, process),

    STRUCT(inode),
    FIELD(inode, ino),
    FIELD(inode, file),
    FIELD(inode, tier),

    STRUCT(inodes),
    FIELD(inodes, seg),
    FIELD(inodes, slot_count),
    FIELD(inodes, used),
    FIELD(inodes, kept),
    FIELD(inodes, hand),
    TAIL(inodes, slots),

    STRUCT(monarch_segments),
    FIELD(monarch_segments, catalog),
    FIELD(monarch_segments, flags),
    FIELD(monarch_segments, requests),
    FIELD(monarch_segments, inodes),

    STRUCT(monarch_options),
    FIELD(monarch_options, threads),
    FIELD(monarch_options, background_max),
    FIELD(monarch_options, bandwidth_bytes_per_s),
    POINTER(monarch_options, digests),
    POINTER(monarch_options, digest_first),
    POINTER(monarch_options, seal_key),
    POINTER(monarch_options, seals),
    FIELD(monarch_options, seals_only),
    FIELD(monarch_options, reserved),

    STRUCT(monarch_seal),
    FIELD(monarch_seal, nonce),
    FIELD(monarch_seal, tag),

    STRUCT(monarch_health),
    FIELD(monarch_health, stalled),
    FIELD(monarch_health, stuck_demand),
    FIELD(monarch_health, stuck_background),

    STRUCT(monarch_order),
    FIELD(monarch_order, file),
    FIELD(monarch_order, tier),
    FIELD(monarch_order, kind),
    FIELD(monarch_order, reserved),

    STRUCT(monarch_completion),
    FIELD(monarch_completion, file),
    FIELD(monarch_completion, tier),
    FIELD(monarch_completion, kind),
    FIELD(monarch_completion, step),
    FIELD(monarch_completion, status),
    FIELD(monarch_completion, reserved),
    FIELD(monarch_completion, bytes),
    FIELD(monarch_completion, ns),

    STRUCT(monarch_traffic),
    FIELD(monarch_traffic, connections),
    FIELD(monarch_traffic, requests),
    FIELD(monarch_traffic, replies),
    FIELD(monarch_traffic, bytes),
    FIELD(monarch_traffic, refused),
    FIELD(monarch_traffic, late),
    FIELD(monarch_traffic, corrupt),
    FIELD(monarch_traffic, malformed),
    FIELD(monarch_traffic, lost),

    STRUCT(monarch_server_options),
    FIELD(monarch_server_options, peers),
    FIELD(monarch_server_options, connections),
    FIELD(monarch_server_options, park_ms),
    FIELD(monarch_server_options, stall_ms),

    STRUCT(monarch_receiver_options),
    FIELD(monarch_receiver_options, peers),
    FIELD(monarch_receiver_options, in_flight),
    FIELD(monarch_receiver_options, timeout_ms),
    FIELD(monarch_receiver_options, react_ms),
    FIELD(monarch_receiver_options, threads),
    FIELD(monarch_receiver_options, sealed),

    STRUCT(monarch_fetch),
    FIELD(monarch_fetch, file),
    FIELD(monarch_fetch, tier),
    FIELD(monarch_fetch, reserved),
    FIELD(monarch_fetch, peer),

    STRUCT(monarch_arrival),
    FIELD(monarch_arrival, file),
    FIELD(monarch_arrival, tier),
    FIELD(monarch_arrival, step),
    FIELD(monarch_arrival, reserved),
    FIELD(monarch_arrival, peer),
    FIELD(monarch_arrival, status),
    FIELD(monarch_arrival, bytes),
    FIELD(monarch_arrival, ns),

    STRUCT(frame_request),
    FIELD(frame_request, magic),
    FIELD(frame_request, kind),
    FIELD(frame_request, reserved),
    FIELD(frame_request, id),
    FIELD(frame_request, catalog_digest),
    FIELD(frame_request, file),
    FIELD(frame_request, extent),

    STRUCT(frame_reply),
    FIELD(frame_reply, magic),
    FIELD(frame_reply, status),
    FIELD(frame_reply, id),
    FIELD(frame_reply, file),
    FIELD(frame_reply, extent),
    FIELD(frame_reply, size),
    FIELD(frame_reply, digest),
    FIELD(frame_reply, ready),
    FIELD(frame_reply, seal),

    MEMBER(segment_kind, SEGMENT_CATALOG),
    MEMBER(segment_kind, SEGMENT_FLAGS),
    MEMBER(segment_kind, SEGMENT_REQUESTS),
    MEMBER(segment_kind, SEGMENT_COUNTERS),
    MEMBER(segment_kind, SEGMENT_INODES),
    MEMBER(segment_kind, SEGMENT_INDEX),
    MEMBER(replica_state, REPLICA_ABSENT),
    MEMBER(replica_state, REPLICA_STAGING),
    MEMBER(replica_state, REPLICA_READY),
    MEMBER(replica_state, REPLICA_EVICTING),
    MEMBER(reason, REASON_NONE),
    MEMBER(reason, REASON_NO_ROOM),
    MEMBER(reason, REASON_CHANGED),
    MEMBER(reason, REASON_ERROR),
    MEMBER(reason, REASON_MEMORY),
    MEMBER(reason, REASON_STOPPING),
    MEMBER(reason, REASON_BUSY),
    MEMBER(source, SOURCE_NONE),
    MEMBER(source, SOURCE_PEER),
    MEMBER(cold_mode, COLD_AUTO),
    MEMBER(cold_mode, COLD_WAIT),
    MEMBER(cold_mode, COLD_THROUGH),
    MEMBER(agent_state, AGENT_STARTING),
    MEMBER(agent_state, AGENT_READY),
    MEMBER(agent_state, AGENT_PLAIN),
    MEMBER(agent_state, AGENT_ENDING),
    MEMBER(process_state, PROCESS_FREE),
    MEMBER(process_state, PROCESS_CLAIMED),
    MEMBER(process_state, PROCESS_LAUNCHED),
    MEMBER(process_state, PROCESS_ACTIVE),
    MEMBER(process_state, PROCESS_LAUNCHER),
    MEMBER(monarch_kind, MONARCH_DEMAND),
    MEMBER(monarch_kind, MONARCH_BACKGROUND),
    MEMBER(monarch_kind, MONARCH_ADOPT),
    MEMBER(monarch_kind, MONARCH_ADOPT_BACKGROUND),
    MEMBER(monarch_step, MONARCH_STEP_ORDER),
    MEMBER(monarch_step, MONARCH_STEP_OPEN),
    MEMBER(monarch_step, MONARCH_STEP_STAT),
    MEMBER(monarch_step, MONARCH_STEP_READ),
    MEMBER(monarch_step, MONARCH_STEP_CREATE),
    MEMBER(monarch_step, MONARCH_STEP_WRITE),
    MEMBER(monarch_step, MONARCH_STEP_VERIFY),
    MEMBER(monarch_step, MONARCH_STEP_PUBLISH),

    CONSTANT(LAYOUT_VERSION),
    CONSTANT(EXTENT_BYTES),
    CONSTANT(CHUNK_BYTES),
    CONSTANT(ROOTS_MAX),
    CONSTANT(MARKED_ALL),
    CONSTANT(TIERS_MAX),
    CONSTANT(TIER_PATH_MAX),
    CONSTANT(PATH_BYTES_MAX),
    CONSTANT(REPLICA_NAME_BYTES),
    CONSTANT(REQUEST_SLOTS),
    CONSTANT(SEAL_KEY_BYTES),
    CONSTANT(PROCESS_SLOTS),
    CONSTANT(PROCESS_NAME_BYTES),
    CONSTANT(WAIT_BUCKETS),
    CONSTANT(FILTER_NAMES_MAX),
    CONSTANT(FILTER_NAME_BYTES),
    CONSTANT(NONE32),
    {"constant", NULL, "STATE_TIER_UNIT", NULL, STATE_WORD(0, 1, 0), 0},
    {"constant", NULL, "STATE_REASON_UNIT", NULL, STATE_WORD(0, 0, 1), 0},
};

static const char counter_lines[] =
#define COUNTER(name, unit, text) "counter " #name " " #unit " " text "\n"
#include "shared/counters.def"
#undef COUNTER
    ;

static char text[TEXT_BYTES_MAX];

/* append - appends a formatted piece; a test detects a text that is truncated. */
__attribute__((format(printf, 2, 3))) static size_t append(size_t at,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text + at, sizeof(text) - at, format, arguments);
    va_end(arguments);
    size_t room = sizeof(text) - 1 - at;
    return at + ((size_t)n < room ? (size_t)n : room);
}

static size_t append_row(size_t at, const struct row *r)
{
    at = append(at, "%s", r->line);
    if (r->owner)
        at = append(at, " %s", r->owner);
    if (r->name)
        at = append(at, " %s %llu", r->name, (unsigned long long)r->value);
    if (r->kind)
        return append(at, " %llu %s\n", (unsigned long long)r->bytes, r->kind);
    if (!r->name)
        return append(at, " %llu\n", (unsigned long long)r->bytes);
    return append(at, "\n");
}

static void write_text(void)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        at = append_row(at, &rows[i]);
    append(at, "%s", counter_lines);
}

/* monarch_layout - the text, formatted at the first call; valid as long as the
 * library. */
const char *monarch_layout(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_text);
    return text;
}
