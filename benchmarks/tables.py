"""How well tables as they are are learnt, beside logistic regression on the same splits.

    python benchmarks/tables.py [penguins] [wine] [breast_cancer] [digits] [--out results/waves/tables.json]

Each table is cut into five stratified parts; each part is asked about by models that learnt the other four: `ucb.Model`
with its defaults, from one file and from three, and scikit-learn's logistic regression behind its usual pipeline. The
penguins (package palmerpenguins) have text columns and missing values; the others come with scikit-learn.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import ucb

SETS = ("penguins", "wine", "breast_cancer", "digits")
SPLITS, SEED = 5, 0
WAYS = {"ucb": 1, "ucb_three_waves": 3}
"""Into how many waves the training rows are cut."""

Table = tuple[list[str], list[list[str]], list[str]]
"""The names of the columns, the rows as text, and their labels."""


def load(name: str) -> Table:
    if name == "penguins":
        package = find_spec("palmerpenguins")  # its code is not run: it needs pandas, and the data do not
        if package is None or package.origin is None:
            raise SystemExit("the package palmerpenguins is missing: it brings the data")
        with (Path(package.origin).parent / "data" / "penguins.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        label = header.index("species")
        names = [column for column in header if column != "species"]
        return names, [row[:label] + row[label + 1 :] for row in rows], [row[label] for row in rows]
    found = getattr(datasets, f"load_{name}")()
    return (
        [str(each) for each in found.feature_names],
        [[repr(float(v)) for v in row] for row in found.data],
        [str(found.target_names[number]) for number in found.target],
    )


def write(path: Path, table: Table, places: Any) -> Path:
    names, rows, labels = table
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "label"])
        writer.writerows([*rows[place], labels[place]] for place in places)
    return path


def ask_ucb(table: Table, train: Any, test: Any, waves: int) -> float:
    """Return the share of right answers after learning the training rows in so many waves of about the same size."""
    model = ucb.Model()
    mixed = np.random.default_rng(SEED).permutation(train)
    with TemporaryDirectory() as folder:
        for number, part in enumerate(np.array_split(mixed, waves)):
            model.learn(write(Path(folder) / f"{number}.csv", table, part))
        answers = model.predict(write(Path(folder) / "asked.csv", table, test))
    assert len(answers) == len(test), answers.skipped
    return mean(row["label"] == table[2][place] for row, place in zip(answers, test, strict=True))


def ask_logistic_regression(table: Table, train: Any, test: Any) -> float:
    """Return the share of right answers of logistic regression, which is told which columns are text."""
    _, rows, labels = table
    y = np.array(labels)
    columns, texts = [], []
    for values in zip(*rows, strict=True):
        is_text = not all(value == "NA" or is_number(value) for value in values)
        texts.append(is_text)
        columns.append([(None if is_text else np.nan) if v == "NA" else v if is_text else float(v) for v in values])
    x = np.array(columns, dtype=object).T
    encoder = OneHotEncoder(handle_unknown="ignore")
    prepared = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ~np.array(texts)),
        (make_pipeline(SimpleImputer(missing_values=None, strategy="most_frequent"), encoder), np.array(texts)),
    )
    fitted = make_pipeline(prepared, LogisticRegression(max_iter=5000)).fit(x[train], y[train])
    return float(fitted.score(x[test], y[test]))


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def compare(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return the mean of the paired differences, and its standard error."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return {"difference": mean(differences), "standard_error": stdev(differences) / math.sqrt(len(differences))}


def measure(name: str) -> dict[str, Any]:
    table = load(name)
    splits = list(StratifiedKFold(SPLITS, shuffle=True, random_state=SEED).split(table[1], table[2]))
    theirs = [ask_logistic_regression(table, train, test) for train, test in splits]
    found: dict[str, Any] = {"rows": len(table[1]), "columns": len(table[0]), "logistic_regression": theirs}
    for way, waves in WAYS.items():
        found[way] = [ask_ucb(table, train, test, waves) for train, test in splits]
        found[f"{way}_beside_it"] = compare(found[way], theirs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/waves/tables.json"))
    options = parser.parse_args()
    found = {}
    for name in options.data:
        found[name] = measure(name)
        print(name, json.dumps(found[name]))
    options.out.write_text(json.dumps({"splits": SPLITS, "seed": SEED, "sets": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
