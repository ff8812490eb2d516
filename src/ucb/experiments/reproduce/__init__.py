"""The paper's tables, measured by us: what to run for each row, running it, and ours beside the paper's figures."""

from ucb.experiments.reproduce.compare import ComparedRow, compare_table
from ucb.experiments.reproduce.definitions import ReproducedRow, ReproducedTable, table_named, tables
from ucb.experiments.reproduce.formats import FORMATS
from ucb.experiments.reproduce.planning import DamagedResultError, TableRun, plan
from ucb.experiments.reproduce.running import RunOutcome, carry_out

__all__ = [
    "FORMATS",
    "ComparedRow",
    "DamagedResultError",
    "ReproducedRow",
    "ReproducedTable",
    "RunOutcome",
    "TableRun",
    "carry_out",
    "compare_table",
    "plan",
    "table_named",
    "tables",
]
