"""``python -m ucb``."""

import argparse

import ucb


def main() -> None:
    """Answer the command line."""
    parser = argparse.ArgumentParser(prog="ucb", description=ucb.__doc__)
    parser.add_argument("--version", action="version", version=f"ucb {ucb.__version__}")
    parser.parse_args()
    parser.print_help()


if __name__ == "__main__":
    main()
