"""Writes the files beside it from pyproject.toml, for `make lock`; what is pinned already stays where it still fits.

Arguments go to uv: `--upgrade` takes the newest of everything, `--upgrade-package NAME` that of one package.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "--strip-extras"),
    *("--universal", "--python-version", "3.11", "--fork-strategy", "fewest", "--custom-compile-command", "make lock"),
)


def pin(name: str, requirements: list[str], *options: str) -> None:
    """Write the pins of requirements, and of all that these need, to a file."""
    command = [*COMPILE, *sys.argv[1:], *options, "--output-file", f"requirements/{name}.txt", "-"]
    subprocess.run(command, input="\n".join(requirements), text=True, check=True, cwd=ROOT)


def leave_out(names: set[str]) -> list[str]:
    """Options that keep packages out of a file."""
    return [f"--no-emit-package={name}" for name in sorted(names)]


def main() -> None:
    """Pin torch by version and the rest by hash; each file follows those before it."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed, extras = pyproject["project"]["dependencies"], pyproject["project"]["optional-dependencies"]
    tools = [*extras["test"], *extras["lint"], *pyproject["build-system"]["requires"], "editables"]
    hashed = ["--generate-hashes", "--constraints", "requirements/torch.txt"]

    pin("torch", [requirement for requirement in needed if requirement.startswith("torch")])
    # What torch needs on one system only comes with some of its builds: a CPU build does without.
    torch = (ROOT / "requirements/torch.txt").read_text()
    of_a_build = {"torch", *re.findall(r"^([\w-]+)==.* ; .*sys_platform", torch, re.MULTILINE)}
    asked_for = {name for tool in tools for name in re.findall(r"^[\w-]+", tool)}
    pin("dev", [*needed, *tools], *hashed, *leave_out(of_a_build - asked_for))
    pin("run", needed, *hashed, "--constraints", "requirements/dev.txt", *leave_out(of_a_build))
    pin("bench", extras["bench"], "--generate-hashes", "--no-deps")
    pin("lock", ["uv"], "--generate-hashes")


if __name__ == "__main__":
    main()
