"""The name by which the nodes of a job find each other, and its run directories."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from monarch.errors import UsageError
from monarch.native import home, homes, hosts_job, job_name, node_name, safe_name

RUN_VARIABLE: Final = "MONARCH_STAGING_RUN"


def shared_job(
    job: str, hosts: Sequence[str], options: int | None, config: Path | None
) -> str:
    """Return the name that the launchers of all nodes use for the job.

    The launcher assigns a random name to a job without one, because it does not read
    the hosts of a configuration file: then the hosts name the job.

    Args:
        job: the name in the run directory.
        options: the fingerprint of the options, None if `job` is not random.
        config: the user's configuration file.
    """
    if options is None or not hosts:
        return job
    return hosts_job(",".join(hosts), options, config)


def run_root(environ: Mapping[str, str]) -> Path:
    """Return the directory in which new run directories are made on this node."""
    given = environ.get("MONARCH_STAGING_RUN_DIR")
    return Path(given) if given else home(make=True)


def run_roots(environ: Mapping[str, str]) -> list[Path]:
    """Return each directory in which run directories of this user may be."""
    given = environ.get("MONARCH_STAGING_RUN_DIR")
    return [Path(given)] if given else homes()


def find_run(environ: Mapping[str, str], job: str | None) -> list[Path]:
    """Return the run directories that the environment or `job` names.

    Without either they are all run directories of this user on this node.
    """
    if job is None and environ.get(RUN_VARIABLE):
        return [Path(environ[RUN_VARIABLE])]
    name = safe_name(job) if job is not None else job_name(environ)
    roots = run_roots(environ)
    if name is not None:
        return [root / f"{name}.{node_name(environ)}" for root in roots]
    return [run for root in roots for run in _runs_in(root)]


def _runs_in(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if (path / "lock").exists())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}") from error
