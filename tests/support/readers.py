"""The reading programs that every machine has, as shell commands."""

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.programs import compile_program, consumer

COMPILED = {
    "read_fopen": ("read_fopen.c",),
    "read_fopen_static": ("read_fopen.c", "-static"),
    "read_openat": ("read_openat.c",),
    "read_ifstream": ("read_ifstream.cc",),
}
SCRUBBED = "env -i /usr/bin/xargs"
FIND_FORMAT = r"%p %y %m %U %G %s %T@ %C@ %i %n %b %D %l\n"
FILES = "find {root} -type f -print0 | sort -z | xargs -0"


@dataclass(frozen=True, slots=True)
class Reader:
    """One program: `line` names {root}, {programs} and {describe}."""

    name: str
    line: str

    def words(self, root: Path, out: Path, programs: Path) -> list[str]:
        """The command line for one dataset root; it empties `out` first."""
        return ["sh", "-c", self.filled(root, out, programs)]

    def filled(self, root: Path, out: Path, programs: Path) -> str:
        """The shell command for one dataset root."""
        places: Mapping[str, Path] = {"root": root, "out": out, "programs": programs}
        quoted = {name: shlex.quote(str(place)) for name, place in places.items()}
        quoted["describe"] = python("describe_tree.py")
        fresh = "rm -rf {out} && mkdir {out} && cd {out} && "
        return (fresh + self.line).format_map(quoted)


def python(name: str, *words: str) -> str:
    """The shell command of a Python consumer; `words` stay open for places."""
    return " ".join([shlex.join(consumer(name)), *words])


# Programs that open nothing of the dataset in a way that can be redirected.
STATIC = Reader("a static program", f"{FILES} {{programs}}/read_fopen_static")
READERS = (
    Reader("sha256sum", f"{FILES} sha256sum"),
    Reader("grep -r", "grep -r -a -c needle {root}"),
    Reader("grep of a pattern", "grep -r -l hay {root} | sort"),
    Reader("tar", "tar --xattrs --acls -cf - -C {root} . | sha256sum"),
    Reader("tar and extract", "tar -cf - -C {root} . | tar -xf - && {describe} ."),
    Reader("cp -a", "cp -a {root} copy && {describe} copy"),
    Reader("diff", "cp -a {root}/class* . && diff -r {root} . | sort; cat class*/*"),
    Reader("cat", f"{FILES} cat"),
    Reader("head and tail", f"{FILES} head -qc 99; {FILES} tail -qc 77"),
    Reader("dd without page cache", f"{FILES} -I@ dd if=@ iflag=direct status=none"),
    Reader("a scrubbed environment", FILES.replace("xargs", SCRUBBED) + " cksum"),
    Reader("fopen in C", f"{FILES} {{programs}}/read_fopen"),
    Reader("openat in C", "{programs}/read_openat {root}"),
    Reader("ifstream in C++", "{programs}/read_ifstream {root}"),
    Reader("describe", "{describe} {root} --identity"),
    Reader("Python files", python("python_files.py", "{root}")),
    Reader("Python pool by fork", python("python_pool.py", "fork", "{root}")),
    Reader("Python pool by spawn", python("python_pool.py", "spawn", "{root}")),
    Reader("Python pool by server", python("python_pool.py", "forkserver", "{root}")),
)
# Programs that request metadata only.
LISTERS = (
    Reader("find", f"find {{root}} -printf '{FIND_FORMAT}' | sort"),
    Reader("ls", "ls -lRain --time-style=full-iso {root}"),
    Reader("du", "du -a {root} | sort; du -ab {root} | sort"),
    Reader("stat", "cd {root} && stat -c '%n %a %s %i %h %y %z' *"),
    Reader("test", "cd {root} && test -r large && test ! -e dangling && echo right"),
)


def build_programs(folder: Path) -> Path:
    """Copies the compiled consumers in C and C++ into a folder."""
    for name, (source, *flags) in COMPILED.items():
        shutil.copy2(compile_program(name, source, *flags), folder)
    return folder


def missing() -> str | None:
    """The missing requirement for building the readers, or None."""
    for tool in ("cc", "c++"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    return None
