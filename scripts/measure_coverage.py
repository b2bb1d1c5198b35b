"""Runs pytest and measures which lines of the installed package are executed.

    .venv/bin/python -P scripts/measure_coverage.py [PYTEST ARGUMENT...]

Every process of .venv that imports `monarch` is measured, agents and the children of
tests included, unless it ends by SIGKILL. Prints the table and the total. Writes into
build/coverage/: `report.txt` with the missing lines, `total.txt`, the data, and html/.
"""

import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "coverage"
SITE = Path(sysconfig.get_path("purelib"))
# Neither the environment nor the working directory of an agent is that of the test, so
# that both files name absolute paths and nothing has to be passed on.
HOOKS = (SITE / "measure_coverage.pth", SITE / "measure_coverage_hook.py")

SETTINGS = """
[run]
data_file = {folder}/data
source_pkgs = monarch
parallel = true
sigterm = false
patch = _exit, execv
disable_warnings =
    no-data-collected, module-not-measured, module-not-imported, already-imported,
    module-not-python, couldnt-parse, trace-changed
[paths]
source =
    {root}/monarch
    */site-packages/monarch
[html]
directory = {folder}/html
"""

# Starts coverage at the first import of the package and not before: a program under the
# Shim, or the daemon of a file system, is neither slowed nor changed.
HOOK = '''
import os
import sys


class Start:
    """Finds nothing; starts coverage when it is first asked for the package."""

    def find_spec(self, name, path=None, target=None):
        if name == "monarch":
            sys.meta_path.remove(self)
            os.environ["COVERAGE_PROCESS_START"] = {settings!r}
            try:
                import coverage

                coverage.process_startup()
            finally:
                os.environ.pop("COVERAGE_PROCESS_START", None)
        return None


sys.meta_path.insert(0, Start())
'''


def install() -> None:
    """Makes the interpreters of .venv measure themselves."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    settings = FOLDER / "settings.ini"
    settings.write_text(SETTINGS.format(folder=FOLDER, root=ROOT))
    HOOKS[1].write_text(HOOK.format(settings=str(settings)))
    HOOKS[0].write_text("import measure_coverage_hook\n")


def remove() -> None:
    """Ends the measuring of processes that start from now on."""
    for hook in HOOKS:
        hook.unlink(missing_ok=True)


def coverage(*words: str) -> str:
    """Runs the command `coverage`; returns what it prints."""
    command = Path(sysconfig.get_path("scripts")) / "coverage"
    settings = f"--rcfile={FOLDER}/settings.ini"
    done = subprocess.run(
        [command, *words, settings], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def report() -> None:
    """Combines the data of all processes; prints and writes the reports."""
    coverage("combine", "--quiet", str(FOLDER))
    coverage("html", "--quiet")
    table = coverage("report", "--show-missing", "--precision=2")
    total = coverage("report", "--format=total", "--precision=2")
    (FOLDER / "report.txt").write_text(table)
    (FOLDER / "total.txt").write_text(total)
    print(coverage("report", "--precision=2"))
    print(f"coverage of monarch/ by line: {total.strip()} % ({FOLDER}/html)")


def main() -> int:
    """Measures one run of pytest; returns its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    install()
    pytest = Path(sysconfig.get_path("scripts")) / "pytest"
    try:
        code = subprocess.run([pytest, *sys.argv[1:]], cwd=ROOT).returncode
    finally:
        remove()
    report()
    return code


if __name__ == "__main__":
    sys.exit(main())
