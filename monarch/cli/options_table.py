"""`python -m monarch.cli.options_table`: generates the launcher's table of options."""

import sys

import click

from monarch.cli.run import run

HEADER = """\
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
"""

FOOTER = """\
};
/* clang-format on */

#endif
"""


def rows() -> list[tuple[str, str, bool]]:
    """Return (long name, short letter or "", takes a value), sorted by name."""
    found = []
    for parameter in run.get_params(click.Context(run, **run.context_settings)):
        if not isinstance(parameter, click.Option):
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        letters = [name[1] for name in names if not name.startswith("--")]
        letter = letters[0] if letters else ""
        takes_value = not (parameter.is_flag or parameter.count)
        found += [
            (name[2:], letter, takes_value) for name in names if name.startswith("--")
        ]
    return sorted(found)


def header() -> str:
    """Return the text of `monarch/native/launcher/options.h`."""
    lines = []
    for name, letter, takes_value in rows():
        quoted = f"'{letter}'" if letter else "0"
        lines.append(f'    {{"{name}", {quoted}, {str(takes_value).lower()}}},\n')
    return HEADER + "".join(lines) + FOOTER


if __name__ == "__main__":
    sys.stdout.write(header())
