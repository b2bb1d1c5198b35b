"""Completion for bash, zsh and fish, made from the definition of the command line.

The scripts contain all verbs, options and values: click's own scripts start Python at
each key press, which costs hundreds of file-system calls, and complete nothing after
`monarch run --`.
"""

from collections.abc import Iterator
from typing import Final

from monarch.cli import VERBS
from monarch.cli.command_tree import Option, Verb, global_options, verbs

HEADER: Final = """\
# Completes the command line of monarch. Made by `python -m monarch.cli.pages`.
"""

BASH: Final = """\
_monarch_program() # prints the place of the first word of the program of `run`
{
    local i
    for ((i = 2; i < ${#COMP_WORDS[@]}; i++)); do
        case " $values " in
        *" ${COMP_WORDS[i]} "*) [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++)); ((i++)) ;;
        *) case ${COMP_WORDS[i]} in
            --) echo $((i + 1)); return ;;
            =) ((i++)) ;;
            -*) ;;
            *) echo $i; return ;;
            esac ;;
        esac
    done
    echo $i
}

_monarch()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local verb=${COMP_WORDS[1]} options= values= paths= words= program=
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "@verbs@ @options@" -- "$cur"))
        return
    fi
    ((COMP_CWORD > 2)) && [[ -n ${COMP_WORDS[2]} ]] && case "$verb ${COMP_WORDS[2]}" in
    @groups@) verb+=" ${COMP_WORDS[2]}" ;;
    esac
    case $verb in
@cases@
    esac
    if [[ $verb == run ]]; then
        program=$(_monarch_program)
        if ((program < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
            _command_offset "$program"
            return
        elif ((program < COMP_CWORD)); then
            compopt -o default
            return
        fi
    fi
    [[ $cur == = ]] && cur=
    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}
    case "$verb $prev" in
@choices@
    esac
    if [[ " $paths " == *" $prev "* ]]; then
        compopt -o default
    elif [[ " $values " == *" $prev "* ]]; then
        return
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ $verb == run ]]; then
        COMPREPLY=($(compgen -c -- "$cur"))
    elif [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        compopt -o default
    fi
}

complete -F _monarch monarch
"""

ZSH: Final = """\
_monarch() {
    local context state state_descr line
    typeset -A opt_args
    _arguments -C @options@ '1: :->verb' '*:: :->rest' && return
    if [[ $state == verb ]]; then
        local -a verbs=(
@verbs@
        )
        _describe verb verbs
        return
    fi
    case $line[1] in
@cases@
    esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _monarch "$@"
else
    compdef _monarch monarch
fi
"""


FISH: Final = """\
function __monarch_at # whether exactly these words stand behind monarch
    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __monarch_in $argv
end
function __monarch_in # whether these words stand behind monarch, and no program yet
    set -l words (commandline -opc)
    contains -- -- $words; and return 1
    test (count $argv) -eq 0; and return
    test (count $words) -gt (count $argv); or return
    set -l last (math 1 + (count $argv))
    test "$words[2..$last]" = "$argv"
end
function __monarch_behind # whether a program is named
    contains -- -- (commandline -opc)
end
function __monarch_program
    set -l words (commandline -opc) (commandline -ct)
    set -l first (math 1 + (contains -i -- -- $words))
    complete -C (string join ' ' -- $words[$first..])
end
"""


def bash() -> str:
    """Return the script for bash 4 or newer, with or without bash-completion."""
    found = list(verbs())
    inner = [f'"{verb.name}"' for verb in found if verb.words[1:]]
    names = [name for option in global_options() for name in option.names]
    parts = {
        "verbs": " ".join(VERBS),
        "options": " ".join(names),
        "groups": " | ".join(inner),
        "cases": "\n".join(line for verb in found for line in _bash_case(verb)),
        "choices": "\n".join(line for verb in found for line in _bash_choices(verb)),
    }
    return HEADER + _filled(BASH, parts)


def _filled(template: str, parts: dict[str, str]) -> str:
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template


def _bash_case(verb: Verb) -> Iterator[str]:
    takes = [option for option in verb.options if option.takes_value]
    lists = {
        "options": [name for option in verb.options for name in option.names],
        "values": [name for option in takes for name in option.names],
        "paths": [n for option in takes if option.takes_path for n in option.names],
        "words": list(verb.wanted),
    }
    yield f'    "{verb.name}")' if verb.words[1:] else f"    {verb.name})"
    for name, words in lists.items():
        if words:
            yield f"        {name}='{' '.join(words)}'"
    yield "        ;;"


def _bash_choices(verb: Verb) -> Iterator[str]:
    for option in verb.options:
        if option.choices:
            names = " | ".join(f'"{verb.name} {name}"' for name in option.names)
            words = " ".join(option.choices)
            yield f"    {names})"
            yield f'        COMPREPLY=($(compgen -W "{words}" -- "$cur"))'
            yield "        return"
            yield "        ;;"


def zsh() -> str:
    """Return the function for zsh."""
    found = list(verbs())
    cases = [_zsh_case(verb, found) for verb in found if len(verb.words) == 1]
    listed = [
        f"            {_zsh_word(v.words[0], v.summary)}"
        for v in found
        if not v.words[1:]
    ]
    options = " ".join(map(_zsh_option, global_options()))
    parts = {
        "verbs": "\n".join(listed),
        "options": options,
        "cases": "\n".join(cases),
    }
    return "#compdef monarch\n" + HEADER + _filled(ZSH, parts)


def _zsh_case(verb: Verb, found: list[Verb]) -> str:
    inner = [one for one in found if one.words[1:] and one.words[0] == verb.words[0]]
    lines = [f"    {verb.words[0]})"]
    if not inner:
        rest = "'*:: :_normal'" if verb.words == ("run",) else _zsh_rest(verb)
        lines.append(f"        _arguments -S {_zsh_options(verb)} {rest}")
        return "\n".join([*lines, "        ;;"])
    lines += ["        if ((CURRENT == 2)); then", "            local -a below=("]
    lines += [
        f"                {_zsh_word(one.words[1], one.summary)}" for one in inner
    ]
    lines += ["            )", "            _describe verb below", "            return"]
    lines += ["        fi", "        case $line[2] in"]
    for one in inner:
        arguments = f"_arguments -S {_zsh_options(one)} {_zsh_rest(one)}"
        shift = "shift words; ((CURRENT--))"
        lines.append(f"        {one.words[1]}) {shift}; {arguments} ;;")
    return "\n".join([*lines, "        esac", "        ;;"])


def _zsh_options(verb: Verb) -> str:
    return " ".join(_zsh_option(option) for option in verb.options)


def _zsh_rest(verb: Verb) -> str:
    return f"'*: :({' '.join(verb.wanted)})'" if verb.wanted else "'*: :_files'"


def _zsh_option(option: Option) -> str:
    value = ""
    if option.takes_value:
        value = ":value:" + ("_files" if option.takes_path else "")
        value = f":value:({' '.join(option.choices)})" if option.choices else value
    meaning = _zsh_text(option.meaning).replace("[", "\\[").replace("]", "\\]")
    star = "*" if option.repeats else ""
    signs = {
        name: "=" if value and name.startswith("--") else "" for name in option.names
    }
    return " ".join(f"'{star}{n}{sign}[{meaning}]{value}'" for n, sign in signs.items())


def _zsh_word(word: str, meaning: str) -> str:
    return f"'{word}:{_zsh_text(meaning)}'"


def _zsh_text(text: str) -> str:
    return text.replace("'", "'\\''").replace(":", "\\:")


def fish() -> str:
    """Return the script for fish."""
    found = list(verbs())
    lines = ["complete -c monarch -f"]
    options = map(_fish_option, global_options())
    lines += [f"complete -c monarch -n __monarch_at {option}" for option in options]
    for verb in found:
        where = _fish_quoted(" ".join(("__monarch_at", *verb.words[:-1])))
        meaning = _fish_quoted(verb.summary)
        lines.append(f"complete -c monarch -n {where} -a {verb.words[-1]} -d {meaning}")
        lines += _fish_verb(verb)
    return HEADER + FISH + "\n".join(lines) + "\n"


def _fish_verb(verb: Verb) -> Iterator[str]:
    where = f"complete -c monarch -n '__monarch_in {verb.name}'"
    for option in verb.options:
        yield f"{where} {_fish_option(option)}"
    if verb.words == ("run",):
        yield "complete -c monarch -n '__monarch_in run' -a '(__fish_complete_command)'"
        yield "complete -c monarch -n __monarch_behind -a '(__monarch_program)'"
    elif not verb.wanted:
        yield f"{where} -F"
    elif not any(one.words[:-1] == verb.words for one in verbs()):
        yield f"{where} -a {_fish_quoted(' '.join(verb.wanted))}"


def _fish_option(option: Option) -> str:
    words = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in option.names
    ]
    if option.choices:
        words.append(f"-x -a {_fish_quoted(' '.join(option.choices))}")
    elif option.takes_value:
        words.append("-r -F" if option.takes_path else "-x")
    return f"{' '.join(words)} -d {_fish_quoted(option.meaning)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
