"""Runs tests of plain Tiers with packed ones: `pytest --codec auto`.

Agents run in an interpreter that gives the first Tier of each configuration the codec,
wherever the configuration may have one; what a test configures itself stays.
"""

import runpy
import shlex
import sys
from pathlib import Path

PYTHON = "MONARCH_STAGING_PYTHON"
PLAIN = "plain"


def packing_python(folder: Path, codec: str) -> str:
    """The path of such an interpreter, made in a folder."""
    place = folder / f"python-{codec}"
    words = shlex.join([sys.executable, "-I", str(Path(__file__).resolve()), codec])
    place.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    place.chmod(0o755)
    return str(place)


def pack(codec: str) -> None:
    """Let each configuration that is read have a packed Tier."""
    from monarch.config import loading
    from monarch.config.schema import Config
    from monarch.config.types import Environment
    from monarch.config.validation import conflicts

    validated = loading._Layers.validated

    def packed(layers: loading._Layers, environment: Environment) -> Config:
        config = validated(layers, environment)
        if not config.tiers or config.tiers[0].codec != PLAIN:
            return config
        first = config.tiers[0].model_copy(update={"codec": codec})
        changed = config.model_copy(update={"tiers": (first, *config.tiers[1:])})
        return config if any(conflicts(changed)) else changed

    loading._Layers.validated = packed  # type: ignore[assignment, method-assign]


def main() -> None:
    """Run `CODEC ... -m monarch WORDS...`."""
    codec, *words = sys.argv[1:]
    module = words.index("-m") + 1
    sys.argv = words[module:]
    pack(codec)
    runpy.run_module(words[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
