/* args.c - the command line of `monarch run`: which words are options, where they end. */
#include "args.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "fingerprint.h"
#include "options.h"
#include "words.h"

_Static_assert(sizeof(launcher_options) / sizeof(launcher_options[0]) <= OPTIONS_MAX,
               "each option has a place in struct arguments");

static const struct launcher_option *by_name(const char *name, size_t length)
{
    const struct launcher_option *option = launcher_options;
    size_t count = sizeof(launcher_options) / sizeof(launcher_options[0]);

    for (size_t i = 0; i < count; i++, option++)
        if (strlen(option->name) == length && !memcmp(option->name, name, length))
            return option;
    return NULL;
}

static const struct launcher_option *by_letter(char letter)
{
    const struct launcher_option *option = launcher_options;
    size_t count = sizeof(launcher_options) / sizeof(launcher_options[0]);

    for (size_t i = 0; i < count; i++, option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

enum { ALIKE_MIN = 3 }; /* letters that make a name a misspelling of another */

/* refuse_long - says that there is no such option, and which one begins most alike. */
static int refuse_long(const char *word, size_t length)
{
    const struct launcher_option *option = launcher_options, *near = NULL;
    size_t count = sizeof(launcher_options) / sizeof(launcher_options[0]);
    size_t alike = ALIKE_MIN - 1;

    for (size_t i = 0; i < count; i++, option++) {
        size_t same = 0;

        while (same < length && option->name[same] == word[2 + same])
            same++;
        if (same > alike) {
            near = option;
            alike = same;
        }
    }
    words_error("no such option: %.*s%s%s%s (see monarch run --help)", (int)length + 2,
                word, near ? ", did you mean --" : "", near ? near->name : "",
                near ? "?" : "");
    return -EINVAL;
}

/* remember - adds a value of an option that configures the agent. */
static void remember(struct arguments *args, const struct launcher_option *option,
                     const char *value)
{
    uint64_t *given = &args->given[option - launcher_options];

    if (!strcmp(option->name, "hosts"))
        args->hosts = value;
    else if (!strcmp(option->name, "config"))
        args->config = value;
    *given = fingerprint_text(*given ? *given : FINGERPRINT_NONE, value);
}

/* sum_up - makes one fingerprint of all options, whatever the order between them. */
static void sum_up(struct arguments *args)
{
    uint64_t print = FINGERPRINT_NONE;

    for (size_t i = 0; i < OPTIONS_MAX; i++) {
        if (!args->given[i])
            continue;
        print = fingerprint_text(print, launcher_options[i].name);
        args->configuration = print = fingerprint_number(print, args->given[i]);
    }
}

/* note - keeps the few options on which the launcher itself acts. */
static int note(struct arguments *args, const struct launcher_option *option,
                const char *value)
{
    const char *name = option->name;

    if (option->takes_value && !value) {
        words_error("option --%s needs a value", name);
        return -EINVAL;
    }
    if (!strcmp(name, "job") && !*value) {
        words_error("option --job needs a name that is not empty");
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
        remember(args, option, value);
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
        words_error("option --%s takes no value", option->name);
        return -EINVAL;
    }
    if (!option->takes_value || equals) {
        err = note(args, option, equals ? equals + 1 : NULL);
        return err ? err : 1;
    }
    err = note(args, option, words[1]);
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
            words_error("no such option: -%c (see monarch run --help)", *letter);
            return -EINVAL;
        }
        if (option->takes_value) {
            err = note(args, option, inside ? letter + 1 : words[1]);
            return err ? err : 2 - inside;
        }
        err = note(args, option, NULL);
        if (err)
            return err;
    }
    return 1;
}

/* arguments_parse - reads the words behind `run`; borrows them. Returns 0, or -EINVAL
 * after one line that says what is wrong. */
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
        words_error("which program? monarch run [OPTIONS] [--] PROGRAM [ARG]...");
        return -EINVAL;
    }
    args->command = words;
    sum_up(args);
    return 0;
}
