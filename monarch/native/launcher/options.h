/* options.h - the options of `monarch run`, sorted by name.
 *
 * Generated from the command line's definition in Python; make it again with
 *   python -m monarch.cli.options_table > monarch/native/launcher/options.h
 * A letter of 0 means that the option has no short form. As everywhere, `--name=value`,
 * `--name value`, `-nvalue` and `-n value` are the same, letters may be bundled, and
 * options end at the first word that is none, or at `--`.
 */
#ifndef MONARCH_OPTIONS_H
#define MONARCH_OPTIONS_H

#include <stdbool.h>

struct launcher_option {
    const char *name; /* without the dashes */
    char letter;
    bool takes_value;
};

/* One row per option, whatever their widths. */
/* clang-format off */
static const struct launcher_option launcher_options[] = {
    {"config", 'c', true},
    {"data", 0, true},
    {"help", 'h', false},
    {"hosts", 0, true},
    {"index", 0, true},
    {"job", 0, true},
    {"quiet", 'q', false},
    {"report", 0, true},
    {"secret-file", 0, true},
    {"set", 0, true},
    {"strict", 0, false},
    {"tier", 0, true},
    {"wait", 0, false},
};
/* clang-format on */

#endif
