"""What the cost of a run means where runs share a process: times depend on neighbours, and memory is held by all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]
MEMORY, BESIDE = "peak_memory_bytes", "beside"


def told_apart(results: Sequence[Result]) -> list[Result]:
    """Return the results, each of another run, without memory that is another run's too.

    Earlier results do not say what ran beside them: where several have exactly the same figure, it is their process's.
    """
    earlier = Counter(_figure(result) for result in results if BESIDE not in result)
    shared = {figure for figure, runs in earlier.items() if runs > 1 and figure[1] is not None}
    return [
        result | {MEMORY: None, BESIDE: None} if BESIDE not in result and _figure(result) in shared else result
        for result in results
    ]


def _figure(result: Result) -> tuple[Any, Any]:
    return result.get("device"), result.get(MEMORY)


def neighbours(result: Result) -> str:
    """Say what learnt at the same time in a run's process, or nothing where it was alone."""
    beside = result.get(BESIDE, 0)
    if beside is None:
        return "perhaps side by side with others"
    return f"side by side with {beside} other{'' if beside == 1 else 's'}" if beside else ""


def rows_of(result: Result) -> list[list[str]]:
    """Return what time and memory a run took, in words."""
    rows = []
    if result.get(MEMORY) is not None:
        whose = "peak memory" if BESIDE in result else "peak memory of its process"
        rows.append([f"{whose} (bytes)", f"{result[MEMORY]:,}"])
    elif BESIDE in result:
        rows.append(["peak memory (bytes)", "not known: runs shared it" if result[BESIDE] != 0 else "not known"])
    if result.get("seconds") is not None:
        rows.append([", ".join(filter(None, ["seconds", neighbours(result)])), f"{result['seconds']:,.1f}"])
    return rows


def about_times(runs: Sequence[Result]) -> str:
    """Return sentences about what else, beside the method, decides the times of runs that are compared."""
    beside = sorted(run[BESIDE] for run in runs if run.get(BESIDE))
    unknown = sum(BESIDE in run and run[BESIDE] is None for run in runs)
    said = ""
    if beside:
        span = f"{beside[0]}" if beside[0] == beside[-1] else f"{beside[0]} to {beside[-1]}"
        others = "other" if beside[-1] == 1 else "others"
        said += f" {len(beside)} of {len(runs)} runs learnt side by side with {span} {others}: alone they take less."
    if unknown:
        said += f" {unknown} of {len(runs)} runs may have learnt side by side with others."
    return said + _about_devices(runs)


def about_memory(runs: Sequence[Result]) -> str:
    """Return sentences about what the memory of runs that are compared stands for, and of which it is not known."""
    known = [run for run in runs if run.get(MEMORY) is not None]
    unknown = sum(BESIDE in run and run.get(MEMORY) is None for run in runs)
    said = " Earlier versions kept the peak of a run's process." if any(BESIDE not in run for run in known) else ""
    if unknown:
        said += f" Not known of {unknown} of {len(runs)} runs: they shared a process with others, or were resumed."
    return said + _about_devices(known)


def _about_devices(runs: Sequence[Result]) -> str:
    devices = sorted({_device(run) for run in runs})
    return f" Not all ran on the same device: {'; '.join(devices)}." if len(devices) > 1 else ""


def _device(run: Result) -> str:
    name = run.get("device") or "a device that is not named"
    return "cpu, 1 thread" if name == "cpu, 1 threads" else str(name)  # as earlier results have it
