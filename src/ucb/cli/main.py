"""The way in. It loads the rest only once it can answer Ctrl-C: loading PyTorch takes a second or two."""

from __future__ import annotations

import sys


def main() -> None:
    """Answer the command line."""
    try:
        from ucb.cli.app import app

        app(prog_name="ucb")
    except KeyboardInterrupt:
        print("interrupted before anything began", file=sys.stderr)
        sys.exit(130)
