"""`python -m monarch`: the same verbs as the command `monarch`."""

import sys

if __name__ == "__main__":
    from monarch.launched import is_launched, serve_launcher

    if is_launched(sys.argv[1:]):
        serve_launcher(sys.argv[1:])
    from monarch.cli import main

    sys.exit(main())
