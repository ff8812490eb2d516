"""Methods of others: a class by its path, ``package.module:Class``, and those that installed packages offer.

A package offers a method by an entry point of the group ``ucb.methods`` that is called like the method.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ucb import checks
from ucb.methods.base import Method, find_own, known_methods

GROUP = "ucb.methods"
NAME = re.compile(r"\w[\w.+-]*")
"""What a method may be called: runs, recipes and trials are kept under it."""


class OfferedMethod(NamedTuple):
    """A method that an installed package offers: the class, or why it cannot be used."""

    package: str
    kind: type[Method] | None
    obstacle: str = ""


def find_outside(which: Any) -> type[Method]:
    """Return a method that is none of ours: by its class, its path, or the name under which a package offers it."""
    if not isinstance(which, str):
        return check_class(which, getattr(which, "__name__", repr(which)))
    if ":" in which:
        with _current_folder_importable():
            return load_class(which)
    offers = [offer for offer in entry_points(group=GROUP) if offer.name == which]
    if not offers:
        raise ValueError(f"there is no method {which!r}: {checks.nearest(which, list_names())}")
    if len(offers) > 1:
        packages = " and ".join(sorted(map(_package_of, offers)))
        paths = " or ".join(sorted(offer.value for offer in offers))
        raise ValueError(f"{packages} have a method {which!r} each: say which, {paths}")
    return load_offer(offers[0])


def list_names() -> list[str]:
    """Return the names of all methods, ours and those of installed packages; none of the others' is imported."""
    return sorted({*known_methods(), *(offer.name for offer in entry_points(group=GROUP))})


def list_offers() -> dict[str, OfferedMethod]:
    """Return what installed packages offer, by name, each imported; one that cannot be used says why."""
    found = {}
    for name, offer in sorted({offer.name: offer for offer in entry_points(group=GROUP)}.items()):
        try:
            found[name] = OfferedMethod(_package_of(offer), find_outside(name))
        except (ValueError, TypeError) as error:
            found[name] = OfferedMethod(_package_of(offer), None, str(error))
    return found


def load_offer(offer: EntryPoint) -> type[Method]:
    """Return the class that an entry point leads to, if it is a method of that name."""
    try:
        kind = load_class(offer.value)
        if kind.name != offer.name:
            raise ValueError(f"{offer.value} is called {kind.name!r}, and its entry point must be called so, too")
    except (ValueError, TypeError) as error:
        said = f"the method {offer.name!r} of {_package_of(offer)} cannot be used: {error}"
        raise ValueError(said) from error.__cause__
    return kind


def _package_of(offer: EntryPoint) -> str:
    return offer.dist.name if offer.dist is not None else "an unknown package"


def load_class(path: str) -> type[Method]:
    """Return the method at ``package.module:Class``; the module is imported."""
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError(f"a method of your own is named package.module:Class, without .py, not {path!r}")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _describe_failure(module, error) from error
        raise ValueError(
            f"there is no module {module!r}: it must be installed, or stand in the current folder, {Path.cwd()}"
        ) from None
    except (Exception, SystemExit) as error:  # a module of another's may fail in any way, or be a program
        raise _describe_failure(module, error) from error
    if not hasattr(found, name):
        where, methods = getattr(found, "__file__", None) or "built in", _methods_in(found)
        advice = checks.nearest(name, methods) if methods else "it has no method"
        raise ValueError(f"the module {module} ({where}) has no {name!r}: {advice}")
    return check_class(getattr(found, name), path)


def _describe_failure(module: str, error: BaseException) -> ValueError:
    return ValueError(f"the module {module!r} cannot be imported: {type(error).__name__}: {error}")


def _methods_in(module: ModuleType) -> list[str]:
    """Return the names of the methods in a module."""
    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, Method)}
    return [name for name, kind in kinds.items() if not isabstract(kind)]


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Let modules in the current folder be found, after all others: they stand in for nothing that is installed."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.reverse()  # the last one that is equal is ours
        sys.path.remove(here)
        sys.path.reverse()


def check_class(kind: Any, said: str) -> type[Method]:
    """Return ``kind`` if it is a class that the engine can use; ``said`` is how the user named it."""
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise TypeError(f"{said} is no method: a method is a class that derives from ucb.Method")
    if isabstract(kind):
        raise TypeError(f"{said} is not whole: it does not define {', '.join(sorted(kind.__abstractmethods__))}")
    for attribute in ("name", "summary"):
        words = getattr(kind, attribute, None)
        if not isinstance(words, str) or not words.strip():
            raise TypeError(f"{said} must say its {attribute}, as a text in the class")
    if not NAME.fullmatch(kind.name):
        raise ValueError(f"{said} is called {kind.name!r}: a name is made of letters, digits, -, _, + and dots")
    own = find_own(kind.name)  # a class that is defined anew, as in a notebook, takes its own place
    if own is not None and (own.__module__, own.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(f"{said} is called {kind.name!r}, as {own.__module__}:{own.__qualname__} is: rename it")
    return kind
