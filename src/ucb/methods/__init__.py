"""One file a method, or a family of methods: adding a method means adding a file, called like it."""

from importlib import import_module
from pkgutil import iter_modules

from ucb import checks
from ucb.methods.base import EvalContext, Method, Settings, TaskData, TaskInfo, method, methods_by_name

__all__ = ["EvalContext", "Method", "Settings", "TaskData", "TaskInfo", "find_method", "known_methods", "method"]


def find_method(name: str) -> type[Method]:
    """Return the method of that name; for a wrong one the nearest right ones are offered.

    Only its own file is imported, and what that needs: imm_mode.py for ``imm-mode`` or, if there is none, imm.py.
    """
    files, words = {found.name for found in iter_modules(__path__)}, name.split("-")
    for length in range(len(words), 0, -1):
        file = "_".join(words[:length])
        if name not in methods_by_name and file in files:
            import_module(f"{__name__}.{file}")
    if name not in methods_by_name:
        raise ValueError(f"there is no method {name!r}: {checks.nearest(name, known_methods())}")
    return methods_by_name[name]


def known_methods() -> dict[str, type[Method]]:
    """Return every method by name, which imports every file of this folder."""
    for found in iter_modules(__path__):
        import_module(f"{__name__}.{found.name}")
    return dict(sorted(methods_by_name.items()))
