/* args.c - the command line of `monarch run`: its options, and where they end. */
#include "launcher.h"

#include <errno.h>
#include <string.h>

#include "options.h"

_Static_assert(sizeof(launcher_options) / sizeof(launcher_options[0]) <= OPTIONS_MAX,
               "each option has a place in struct arguments");

enum {
    OPTION_COUNT = sizeof(launcher_options) / sizeof(launcher_options[0]),
    SIMILAR_MIN = 3, /* equal first letters of a misspelt name */
};

static const struct launcher_option *by_name(const char *name, size_t length)
{
    const struct launcher_option *option = launcher_options;

    for (size_t i = 0; i < OPTION_COUNT; i++, option++)
        if (strlen(option->name) == length && !memcmp(option->name, name, length))
            return option;
    return NULL;
}

static const struct launcher_option *by_letter(char letter)
{
    const struct launcher_option *option = launcher_options;

    for (size_t i = 0; i < OPTION_COUNT; i++, option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

/* refuse_long - reports an unknown option, and the most similar one. */
static int refuse_long(const char *word, size_t length)
{
    const struct launcher_option *option = launcher_options, *similar = NULL;
    size_t longest = SIMILAR_MIN - 1;

    for (size_t i = 0; i < OPTION_COUNT; i++, option++) {
        size_t same = 0;

        while (same < length && option->name[same] == word[2 + same])
            same++;
        if (same > longest) {
            similar = option;
            longest = same;
        }
    }
    message_error("no such option: %.*s%s%s%s (see monarch run --help)",
                  (int)length + 2, word, similar ? ", did you mean --" : "",
                  similar ? similar->name : "", similar ? "?" : "");
    return -EINVAL;
}

/* add_value - adds a value of an option that configures the agent. */
static void add_value(struct arguments *args, const struct launcher_option *option,
                      const char *value)
{
    uint64_t *values = &args->values[option - launcher_options];

    if (!strcmp(option->name, "hosts"))
        args->hosts = value;
    else if (!strcmp(option->name, "config"))
        args->config = value;
    *values = fingerprint_text(*values ? *values : FINGERPRINT_EMPTY, value);
}

/* set_fingerprint - combines the options in the order of their names, so that their order
 * on the command line does not matter. */
static void set_fingerprint(struct arguments *args)
{
    uint64_t print = FINGERPRINT_EMPTY;

    for (size_t i = 0; i < OPTIONS_MAX; i++) {
        if (!args->values[i])
            continue;
        print = fingerprint_text(print, launcher_options[i].name);
        args->fingerprint = print = fingerprint_number(print, args->values[i]);
    }
}

/* set_option - stores an option on which the launcher acts, or adds it to the fingerprint of
 * those that configure the agent. */
static int set_option(struct arguments *args, const struct launcher_option *option,
                      const char *value)
{
    const char *name = option->name;

    if (option->takes_value && !value) {
        message_error("option --%s needs a value", name);
        return -EINVAL;
    }
    if (!strcmp(name, "job") && !*value) {
        message_error("option --job needs a name that is not empty");
        return -EINVAL;
    }
    if (!strcmp(name, "job"))
        args->job = value;
    else if (!strcmp(name, "help"))
        args->help = true;
    else if (!strcmp(name, "quiet"))
        args->quiet = true;
    else if (!strcmp(name, "strict"))
        args->strict = true;
    else if (!strcmp(name, "wait"))
        args->wait = true;
    else if (value)
        add_value(args, option, value);
    return 0;
}

/* parse_long - takes `--name`, `--name=value` or `--name value`; returns the number of
 * words used, or -EINVAL. */
static int parse_long(struct arguments *args, char **words)
{
    const char *name = words[0] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct launcher_option *option = by_name(name, length);
    int err;

    if (!option)
        return refuse_long(words[0], length);
    if (equals && !option->takes_value) {
        message_error("option --%s takes no value", option->name);
        return -EINVAL;
    }
    if (!option->takes_value || equals) {
        err = set_option(args, option, equals ? equals + 1 : NULL);
        return err ? err : 1;
    }
    err = set_option(args, option, words[1]);
    return err ? err : 2;
}

/* parse_letters - takes `-q`, `-qh`, `-cVALUE` or `-c VALUE`; returns the number of words
 * used, or -EINVAL. */
static int parse_letters(struct arguments *args, char **words)
{
    for (const char *letter = words[0] + 1; *letter; letter++) {
        const struct launcher_option *option = by_letter(*letter);
        bool inside = letter[1] != '\0';
        int err;

        if (!option) {
            message_error("no such option: -%c (see monarch run --help)", *letter);
            return -EINVAL;
        }
        if (option->takes_value) {
            err = set_option(args, option, inside ? letter + 1 : words[1]);
            return err ? err : 2 - inside;
        }
        err = set_option(args, option, NULL);
        if (err)
            return err;
    }
    return 1;
}

/* arguments_parse - parses the arguments after `run`; borrows them. Returns 0, or prints one line
 * that explains the error and returns -EINVAL. */
int arguments_parse(struct arguments *args, char **words)
{
    *args = (struct arguments){.all = words};
    while (*words && words[0][0] == '-' && words[0][1]) {
        int used;

        if (!strcmp(*words, "--")) {
            words++;
            break;
        }
        used = words[0][1] == '-' ? parse_long(args, words)
                                  : parse_letters(args, words);
        if (used < 0)
            return used;
        if (args->help)
            return 0;
        words += used;
    }
    if (!*words) {
        message_error("no program given: monarch run [OPTIONS] [--] PROGRAM [ARG]...");
        return -EINVAL;
    }
    args->command = words;
    set_fingerprint(args);
    return 0;
}
