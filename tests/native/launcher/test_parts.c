/* test_parts.c - the launcher's pure parts: decisions, environments, lines, options. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/launcher.h"

static void signals_are_forwarded_by_their_source(void)
{
    const struct signal_parties job = {.self = 10, .program = 11};
    const struct signal_parties leader = {
        .self = 10, .program = 11, .leads_session = true};
    const int keys[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGHUP};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert(signal_policy(&job, keys[i], SI_KERNEL, 0) == SIGNAL_IGNORE);
        assert(signal_policy(&job, keys[i], SI_USER, 5) == SIGNAL_PROBE);
        assert(signal_policy(&job, keys[i], SI_QUEUE, 5) == SIGNAL_PROBE);
        assert(signal_policy(&job, keys[i], SI_TKILL, 5) == SIGNAL_PROBE);
    }
    assert(signal_policy(&leader, SIGHUP, SI_KERNEL, 0) == SIGNAL_FORWARD);
    assert(signal_policy(&leader, SIGINT, SI_KERNEL, 0) == SIGNAL_IGNORE);
    assert(signal_policy(&job, SIGALRM, SI_KERNEL, 0) == SIGNAL_FORWARD);
    assert(signal_policy(&job, SIGPIPE, SI_USER, 10) == SIGNAL_IGNORE);
    assert(signal_policy(&job, SIGUSR1, SI_USER, 11) == SIGNAL_IGNORE);
    assert(signal_policy(&job, SIGCHLD, CLD_EXITED, 11) == SIGNAL_CHILD);
    assert(signal_policy(&job, SIGCONT, SI_USER, 5) == SIGNAL_CONTINUE);
    assert(signal_policy(&job, SIGIO, POLL_IN, 0) == SIGNAL_IGNORE);
}

static void expect_preload(const char *old, const char *old_run, const char *expected)
{
    char preload[256], run[256];
    char *envp[4] = {(char *)"A=1", NULL, NULL, NULL}, **new;
    int n = 1;

    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", old ? old : "");
    snprintf(run, sizeof(run), "MONARCH_STAGING_RUN=%s", old_run ? old_run : "");
    if (old)
        envp[n++] = preload;
    if (old_run)
        envp[n++] = run;
    new = env_for_program(envp, "/new");
    assert(!strcmp(new[0], "A=1"));
    assert(!strcmp(new[1] + strlen("LD_PRELOAD="), expected));
    assert(!strcmp(new[2], "MONARCH_STAGING_RUN=/new"));
    assert(!new[3]);
}

static void shim_is_preloaded_last_and_only_once(void)
{
    expect_preload(NULL, NULL, "/new/shim.so");
    expect_preload("", NULL, "/new/shim.so");
    expect_preload("/a.so", NULL, "/a.so:/new/shim.so");
    expect_preload("/a.so /b.so", NULL, "/a.so /b.so:/new/shim.so");
    expect_preload("/a.so:", NULL, "/a.so:/new/shim.so");
    expect_preload("/old/shim.so", "/old", "/new/shim.so");
    expect_preload("/old/shim.so:/a.so", "/old", "/a.so:/new/shim.so");
    expect_preload("/a.so:/old/shim.so", "/old", "/a.so:/new/shim.so");
    expect_preload("/a.so:/old/shim.so:/b.so", "/old", "/a.so:/b.so:/new/shim.so");
    expect_preload("/new/shim.so:/a.so", "/new", "/a.so:/new/shim.so");
    expect_preload("/x/old/shim.so", "/old", "/x/old/shim.so:/new/shim.so");
}

static void shim_is_removed_for_python(void)
{
    char *envp[] = {(char *)"LD_PRELOAD=/r/shim.so",
                    (char *)"B=", (char *)"MONARCH_STAGING_RUN=/r", NULL};
    char **agent = env_for_agent(envp), **verb = env_for_python(envp);

    assert(!strcmp(agent[0], "B=") && !agent[1]);
    assert(!strcmp(verb[1], "MONARCH_STAGING_RUN=/r") && !verb[2]);
    envp[0] = (char *)"LD_PRELOAD=/a.so:/r/shim.so";
    assert(!strcmp(env_for_python(envp)[0], "LD_PRELOAD=/a.so"));
}

/* feed - writes all to a pipe, closes it, and reads notices in the given portions. */
static struct notice feed(struct notices *notices, const char *text, size_t portion)
{
    int fds[2];
    struct notice notice = {.kind = NOTICE_NONE};

    assert(!pipe(fds));
    notices_begin(notices, fds[0]);
    for (size_t at = 0, length = strlen(text); at < length; at += portion) {
        size_t n = length - at < portion ? length - at : portion;

        assert(write(fds[1], text + at, n) == (ssize_t)n);
        assert(notices_read(notices, 1000));
        if (at + n < length)
            assert((notice = notices_next(notices)).kind == NOTICE_NONE);
    }
    close(fds[1]);
    return notices_next(notices);
}

static void notices_are_parsed_in_any_portions(void)
{
    static struct notices notices;

    for (size_t portion = 1; portion < 20; portion++) {
        struct notice notice = feed(&notices, "fail 125 no room\n", portion);

        assert(notice.kind == NOTICE_FAIL && notice.code == 125);
        assert(!strcmp(notice.text, "no room"));
        notices_close(&notices);
    }
    assert(feed(&notices, "say\n", 9).kind == NOTICE_SAY);
    notices_close(&notices);
    assert(feed(&notices, "sayx y\n", 9).kind == NOTICE_UNKNOWN);
    notices_close(&notices);
    assert(feed(&notices, "fail\n", 9).code == 0);
    notices_close(&notices);
}

static void last_line_needs_no_newline(void)
{
    static struct notices notices;

    assert(feed(&notices, "plain late", 20).kind == NOTICE_NONE);
    assert(!notices_read(&notices, 1000) && notices.fd < 0);
    assert(notices_next(&notices).kind == NOTICE_PLAIN);
    assert(notices_next(&notices).kind == NOTICE_NONE);
}

static void options_that_configure_have_a_fingerprint(void)
{
    struct arguments one, two;
    char *plain[] = {(char *)"-q", (char *)"--strict", (char *)"x", NULL};
    char *spaced[] = {(char *)"--data", (char *)"/d", (char *)"-c",
                      (char *)"f",      (char *)"x",  NULL};
    char *joined[] = {(char *)"--data=/d", (char *)"-cf", (char *)"--", (char *)"-x",
                      NULL};
    char *other[] = {(char *)"--data=/", (char *)"--job", (char *)"d", (char *)"-",
                     NULL};

    assert(!arguments_parse(&one, plain) && !one.fingerprint && one.quiet);
    assert(!arguments_parse(&one, spaced) && !arguments_parse(&two, joined));
    assert(one.fingerprint == two.fingerprint && one.fingerprint);
    assert(!strcmp(two.command[0], "-x"));
    assert(!arguments_parse(&two, other) && one.fingerprint != two.fingerprint);
    assert(!strcmp(two.job, "d") && !strcmp(two.command[0], "-"));
}

static void only_the_order_of_one_options_values_matters(void)
{
    struct arguments one, two;
    char *there[] = {(char *)"--data=/d", (char *)"--set=a", (char *)"--set=b",
                     (char *)"x", NULL};
    char *mixed[] = {(char *)"--set=a", (char *)"--data=/d", (char *)"--set=b",
                     (char *)"x", NULL};
    char *other[] = {(char *)"--set=b", (char *)"--data=/d", (char *)"--set=a",
                     (char *)"x", NULL};

    assert(!arguments_parse(&one, there) && !arguments_parse(&two, mixed));
    assert(one.fingerprint == two.fingerprint);
    assert(!arguments_parse(&two, other) && one.fingerprint != two.fingerprint);
}

static void names_are_file_names(void)
{
    static char *envp[] = {(char *)"MONARCH_STAGING_NODE=../n\n1", NULL};
    static struct run run = {.args.job = "a/b:c d$", .envp = envp};
    const struct job *job = &run.job;

    job_find(&run);
    assert(!strcmp(job->name, "a_b_c_d_") && !strcmp(job->node, ".._n_1"));
    assert(job->named);
    run.args.job = NULL;
    job_find(&run);
    assert(!strncmp(job->name, "local-", 6) && strlen(job->name) == 18 && !job->named);
}

static void stopped_heartbeat_is_lost(void)
{
    struct requests requests = {.heartbeat_ns = 1};
    struct segments segments = {.requests = &requests};
    struct heartbeat heartbeat = {0};

    for (int i = 0; i < 200; i++, requests.heartbeat_ns++)
        assert(!heartbeat_missed(&heartbeat, &segments) && !heartbeat_lost(&heartbeat));
    for (int i = 0; i < 49; i++)
        heartbeat_missed(&heartbeat, &segments);
    assert(!heartbeat_lost(&heartbeat));
    assert(heartbeat_missed(&heartbeat, &segments));
    heartbeat_missed(&heartbeat, &segments);
    assert(heartbeat_lost(&heartbeat));
    requests.heartbeat_ns++;
    assert(!heartbeat_missed(&heartbeat, &segments) && !heartbeat_lost(&heartbeat));
}

int main(void)
{
    signals_are_forwarded_by_their_source();
    shim_is_preloaded_last_and_only_once();
    shim_is_removed_for_python();
    notices_are_parsed_in_any_portions();
    last_line_needs_no_newline();
    options_that_configure_have_a_fingerprint();
    only_the_order_of_one_options_values_matters();
    names_are_file_names();
    stopped_heartbeat_is_lost();
    return 0;
}
