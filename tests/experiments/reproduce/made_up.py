"""A table that takes seconds, and result files that no run made."""

import dataclasses
import json

from ucb.experiments.reproduce.definitions import from_values, job_of, table_named

QUICK = {"hidden": [16], "epochs": 1, "eval_samples": 1}


def tiny(*rows):
    """Two tasks of 5-Split MNIST with a few units; by default fine-tuning and UCB."""
    rows = rows or (row("ord-ft", "ORD-FT"), row("ucb", "UCB", samples=1))
    shared = {"benchmark": "mnist-5split", "paper": ["5split-mnist", "5split-mnist-spread"]}
    return from_values({"id": "tiny", "about": "a made-up table", **shared, "rows": list(rows)})


def row(method, paper=None, variant="", more=None, **settings):
    """A row of the tiny table; ``more`` is what is no setting."""
    made = {"method": method, "variant": variant, "tasks": 2, "settings": {**QUICK, **settings}, **(more or {})}
    return made if paper is None else {**made, "paper": paper}


def keep(results, table, name, seed, acc, bwt=0.0, settings=None, **config):
    """Write a result file as a run of the row would; ``settings`` and ``config`` are what the run had otherwise."""
    table = table_named(table) if isinstance(table, str) else table
    path = results / "tables" / table.id / f"{name}-seed{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    had = dataclasses.asdict(job_of(table.row(name), seed)) | config
    had["settings"] = had["settings"] | (settings or {})
    sizes = {"weights": 954010, "stored_values": 2862030}
    path.write_text(json.dumps({"seed": seed, "acc": acc, "bwt": bwt, **sizes, "config": had}))
    return path
