"""``python -m ucb``."""

from ucb.cli.main import main

if __name__ == "__main__":
    main()
