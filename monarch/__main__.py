"""`python -m monarch`: the same verbs as the command `monarch`."""

import sys

from monarch.cli import main

if __name__ == "__main__":
    sys.exit(main())
