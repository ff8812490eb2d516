"""The paper's tables, measured by us: what to run for each row, running it, and ours beside the paper's figures."""

from ucb.reproduce.compare import Line, compared
from ucb.reproduce.definitions import PaperRow, Row, Table, table_named, tables
from ucb.reproduce.formats import FORMATS
from ucb.reproduce.plan import Planned, plan
from ucb.reproduce.result_files import DamagedResultError
from ucb.reproduce.running import Outcome, carry_out

__all__ = [
    "FORMATS",
    "DamagedResultError",
    "Line",
    "Outcome",
    "PaperRow",
    "Planned",
    "Row",
    "Table",
    "carry_out",
    "compared",
    "plan",
    "table_named",
    "tables",
]
