"""One file a method, or a family of methods: adding a method means adding a file, called like it."""

from ucb.methods.base import EvalContext, Method, Settings, TaskData, TaskInfo, find_method, known_methods, method

__all__ = ["EvalContext", "Method", "Settings", "TaskData", "TaskInfo", "find_method", "known_methods", "method"]
