"""An interpreter whose agents pack their first Tier, wherever the configuration may.

`scripts/test --packed` sets MONARCH_STAGING_PYTHON to it, so that tests of plain Tiers
are tests of packed ones. What a test configures stays: another codec, kept Tiers.
"""

import runpy
import shlex
import sys
from pathlib import Path

VARIABLE = "MONARCH_STAGING_PYTHON"
CODEC = "auto"


def made(folder: Path) -> str:
    """The path of such an interpreter, made in a folder."""
    place = folder / "packed-python"
    words = shlex.join([sys.executable, "-I", str(Path(__file__).resolve())])
    place.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    place.chmod(0o755)
    return str(place)


def pack() -> None:
    """Let each configuration that is read have a packed Tier."""
    from monarch.config import loading
    from monarch.config.schema import Config
    from monarch.config.types import Environment
    from monarch.config.validation import conflicts

    validated = loading._Layers.validated

    def packed(layers: loading._Layers, environment: Environment) -> Config:
        config = validated(layers, environment)
        if not config.tiers or config.tiers[0].codec != "plain":
            return config
        first = config.tiers[0].model_copy(update={"codec": CODEC})
        changed = config.model_copy(update={"tiers": (first, *config.tiers[1:])})
        return config if any(conflicts(changed)) else changed

    loading._Layers.validated = packed  # type: ignore[method-assign]


def main() -> None:
    """Run `-m monarch WORDS...`."""
    words = sys.argv[1:]
    module = words.index("-m") + 1 if "-m" in words else 0
    sys.argv = words[module:]
    pack()
    runpy.run_module(words[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
