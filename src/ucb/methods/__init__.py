"""One file a method. Every module of this folder is imported, so adding a method means adding a file."""

from importlib import import_module
from pkgutil import iter_modules

from ucb.methods.base import Asked, Method, Settings, TaskData, TaskHiddenError, TaskInfo, known_methods, method

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Asked", "Method", "Settings", "TaskData", "TaskHiddenError", "TaskInfo", "known_methods", "method"]
