"""The way in. It loads the rest only once it can answer Ctrl-C: loading PyTorch takes a second or two."""

from __future__ import annotations

import sys

from ucb.cli.threads import share_the_machine


def main() -> None:
    """Answer the command line."""
    share_the_machine()
    try:
        from ucb.cli.app import app

        app(prog_name="ucb")
    except KeyboardInterrupt:
        print("interrupted before anything began", file=sys.stderr)
        sys.exit(130)
