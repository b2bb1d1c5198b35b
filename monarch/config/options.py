"""What the command line of `monarch run` asks for."""

from dataclasses import dataclass

KINDS = ("ram", "ssd")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one `monarch run`, as text.

    Args:
        settings: each `KEY=VALUE` of --set.
        tiers: each `KIND:CAPACITY[:PATH]` of --tier.
        hosts: the nodes of the job, as a list.
        wait: the launcher stays until the job has ended on this node.
    """

    config: str | None = None
    settings: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    job: str | None = None
    report: str | None = None
    index: str | None = None
    hosts: str | None = None
    secret_file: str | None = None
    strict: bool = False
    quiet: bool = False
    wait: bool = False

    def given(self) -> dict[str, tuple[str, ...]]:
        """Return the options that configure the agent, with their values, by name."""
        options = {
            "config": self.config,
            "data": self.data,
            "hosts": self.hosts,
            "index": self.index,
            "report": self.report,
            "secret-file": self.secret_file,
            "set": self.settings,
            "tier": self.tiers,
        }
        return {
            name: (value,) if isinstance(value, str) else value
            for name, value in options.items()
            if value is not None and value != ()
        }


def parse_tier(text: str) -> dict[str, str]:
    """Return the configuration of one tier from `KIND:CAPACITY[:PATH]`.

    Raises ValueError saying what is allowed instead.
    """
    kind, _, rest = text.partition(":")
    capacity, _, path = rest.partition(":")
    if kind not in KINDS:
        raise ValueError("KIND:CAPACITY[:PATH] with kind ram or ssd, such as ram:8GiB")
    if not capacity:
        raise ValueError(f"a capacity after {kind}:, such as {kind}:8GiB")
    if kind == "ssd" and not path:
        raise ValueError(
            f"a directory after the capacity, such as {kind}:{capacity}:/local"
        )
    tier = {"name": kind, "kind": kind, "capacity": capacity}
    return {**tier, "path": path} if path else tier
