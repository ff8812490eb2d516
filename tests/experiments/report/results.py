"""Results for the tests: small ones with known figures."""

import json

TASKS = ["0/1", "<b>2</b>", "4/5"]
MATRIX = [[99.0], [97.0, 96.0], [95.0, 96.5, 94.0]]
SIGMA = {
    "trunk.1.weight": {"ratio_p1": 0.25, "ratio_p50": 0.5, "ratio_p99": 2.0, "std_log_sigma": 0.3},
    "heads.0.weight": {"ratio_p1": 0.9, "ratio_p50": 1.0, "ratio_p99": 1.1, "std_log_sigma": 0.1},
}
HALF = {"trunk.1.weight": {**SIGMA["trunk.1.weight"], "ratio_p50": 0.75}, "heads.0.weight": SIGMA["heads.0.weight"]}
CURVE = {"count": [10, 30], "confidence": [0.6, 0.9], "accuracy": [0.5, 1.0]}
CONFIG = {"benchmark": "mnist-5split", "method": "ucb", "seed": 0, "tasks": 3, "single_head": False, "blur": None}
CONFIG |= {"faces": None, "data": [], "net": None, "net_options": {"hidden": [16]}, "training": {"epochs": 1}}
CONFIG |= {"settings": {"lr": 0.3}, "device": "cpu"}


def result(method="ucb", seed=0, acc=95.0, **changed):
    """A result with all its keys; ``changed`` replaces some, and None takes a key away."""
    whole = {
        "benchmark": "mnist-5split",
        "method": method,
        "seed": seed,
        "tasks": TASKS,
        "accuracy_matrix": MATRIX,
        "acc": acc,
        "bwt": -1.0,
        "forgetting": 1.75,
        "nll": [0.1, 0.2, 0.3],
        "ece": [0.1, 0.1, 0.1],
        "calibration": [CURVE] * 3,
        "epochs": [1, 1, 1],
        "sigma": SIGMA,
        "sigma_by_task": [HALF, SIGMA, SIGMA],
        "weights": 1000,
        "stored_values": 3_000_000,
        "config": {**CONFIG, "method": method, "seed": seed},
        "versions": {"ucb": "0.1.0"},
        "device": "cpu, 1 thread",
        "seconds": 6.0 + int(seed),
        "task_seconds": [1.0, 2.0, 3.0],
        "beside": 0,
        "peak_memory_bytes": 500_000_000,
    }
    return {key: value for key, value in (whole | changed).items() if value is not None}


def written(path, value):
    """Write a value as JSON; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path
