/* test_route.c - routing, identities and Replica names in this process, for sanitizers.
 *
 *   test_route RUN TIER ROOT            all checks
 *   test_route RUN TIER ROOT overflow   reads a path without an end: must be caught
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board_build.h"
#include "../shared/check.h"
#include "shim/names/identity.h"
#include "shim/names/route.h"
#include "shim/names/segments.h"
#include "shim/names/wait.h"

static struct segments segments;
static struct route route;

static const char *routed(enum where where)
{
    static char text[PATH_BYTES_MAX];
    if (where == ROUTE_OUTSIDE)
        return "outside";
    snprintf(text, sizeof(text), "%s%.*s%s", where == ROUTE_FOUND ? "" : "? ",
             (int)route.rel_bytes, route.rel, route.directory_only ? "/" : "");
    return text;
}

/* expect - a path below ROOT (written as "$"), and its required route. */
static void expect(const char *root, const char *path, const char *wanted)
{
    char full[2 * PATH_BYTES_MAX];
    const char *dollar = strchr(path, '$');
    snprintf(full, sizeof(full), "%.*s%s%s", dollar ? (int)(dollar - path) : 0, path,
             dollar ? root : "", dollar ? dollar + 1 : path);
    char *exact = strdup(full); /* the sanitizer knows its end */
    const char *got = routed(route_absolute(&segments, exact, &route));
    if (strcmp(got, wanted) != 0) {
        fprintf(stderr, "%s -> %s, not %s\n", full, got, wanted);
        exit(1);
    }
    free(exact);
}

static void check_absolute(const char *root)
{
    static const char *const cases[][2] = {
        {"$", ""},
        {"$/", ""},
        {"$/.", "/"},
        {"$/two.bin", "two.bin"},
        {"$//two.bin", "two.bin"},
        {"/$/two.bin", "two.bin"},
        {"/.$/two.bin", "two.bin"},
        {"$/./a/.//b/three.bin", "a/b/three.bin"},
        {"$/a/b/.hidden", "a/b/.hidden"},
        {"$/..odd/x y", "..odd/x y"},
        {"$/a/", "a/"},
        {"$/a/b/..", "a/"},
        {"$/a/b/../..", "/"},
        {"$/a/..", "/"},
        {"$/..", "outside"},
        {"$/../x", "outside"},
        {"$/a/../../x", "outside"},
        {"$/folder/..", "outside"},
        {"$/missing/../two.bin", "outside"},
        {"$/two.bin/..", "outside"},
        {"$/two.bin/", "two.bin/"},
        {"$/folder/three.bin", "a/b/three.bin"},
        {"$/folder/missing", "? a/b/missing"},
        {"$/missing", "? missing"},
        {"$x/two.bin", "outside"},
        {"$x", "outside"},
        {"/", "outside"},
        {"//", "outside"},
        {"/.", "outside"},
        {"/..", "outside"},
        {"/x/..$/two.bin", "outside"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect(root, cases[i][0], cases[i][1]);
}

static void check_long(const char *root)
{
    char path[4 * PATH_BYTES_MAX];
    for (size_t n = PATH_BYTES_MAX - 4; n < PATH_BYTES_MAX + 4; n++) {
        int head = snprintf(path, sizeof(path), "%s/", root);
        memset(path + head, 'x', n);
        path[(size_t)head + n] = 0;
        char *exact = strdup(path);
        enum where where = route_absolute(&segments, exact, &route);
        CHECK(where == (n < PATH_BYTES_MAX ? ROUTE_UNKNOWN : ROUTE_OUTSIDE));
        path[head] = '.', path[head + 1] = '/';
        strcpy(exact, path);
        CHECK(route_absolute(&segments, exact, &route) != ROUTE_FOUND);
        free(exact);
    }
}

static void check_relative(const char *root)
{
    char cwd[PATH_BYTES_MAX];
    int n = snprintf(cwd, sizeof(cwd), "%s/a/b", root);
    const struct {
        const char *path, *wanted;
    } cases[] = {
        {"three.bin", "a/b/three.bin"},
        {"./../same.bin", "a/same.bin"},
        {"../../two.bin", "two.bin"},
        {"../..//./two.bin", "two.bin"},
        {".", "a/b"},
        {"..", "a"},
        {"../../..", "outside"},
        {"../../../dataset/two.bin", "two.bin"},
        {"../../../../../../../../../../../..", "outside"},
        {".hidden", "a/b/.hidden"},
        {"...", "? a/b/..."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char got[PATH_BYTES_MAX];
        strcpy(got,
               routed(route_from(&segments, cwd, (size_t)n, cases[i].path, &route)));
        if (got[0] && got[strlen(got) - 1] == '/')
            got[strlen(got) - 1] = 0;
        if (strcmp(got, cases[i].wanted) != 0) {
            fprintf(stderr, "%s -> %s\n", cases[i].path, got);
            exit(1);
        }
    }
}

static void check_identity(const struct plan *plan, struct built *b)
{
    struct identity id;
    struct stat st;
    char path[PATH_BYTES_MAX];
    CHECK(route_below(&segments, 0, 0, "a/same.bin", &route) == ROUTE_FOUND);
    uint32_t file = route_entry(&route)->file;
    replica_of(plan, b, file, path);
    CHECK(stat(path, &st) == 0 && identity_of(&segments, &st, &id) && id.file == file);
    CHECK(identity_path(&id, path) && stat(path, &st) == 0);
    CHECK(st.st_ino == id.entry->ino && !identity_of(&segments, &st, &id));
}

static void check_slots(const struct built *b)
{
    for (uint64_t file = 0; file < 4 * REQUEST_SLOTS; file++)
        wait_request(&segments, file);
    for (int i = 0; i < REQUEST_SLOTS; i++)
        CHECK(b->requests->slots[i] != 0);
    CHECK(wait_request(&segments, b->requests->slots[0] - 1));
    CHECK(!wait_request(&segments, 1u << 30));
}

static void overflow(const char *root)
{
    size_t n = strlen(root);
    char *endless = malloc(n + 4);
    memcpy(endless, root, n);
    memcpy(endless + n, "/two", 4);
    printf("%d\n", route_absolute(&segments, endless, &route));
    free(endless);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const struct plan plan = {.run = argv[1], .tier = argv[2], .root = argv[3]};
    struct built b = board_build(&plan);
    for (uint32_t f = 0; f < b.catalog->file_count; f++)
        board_publish(&plan, &b, f);
    segments.catalog = b.catalog;
    segments.flags = b.flags;
    segments.requests = b.requests;
    segments.counters = b.counters;
    segments.inodes = b.inodes;
    segments_order(&segments);
    if (argc > 4) {
        overflow(plan.root);
        return 0;
    }
    check_absolute(plan.root);
    check_long(plan.root);
    check_relative(plan.root);
    check_identity(&plan, &b);
    check_slots(&b);
    puts("ok");
    return 0;
}
