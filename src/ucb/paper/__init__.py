"""The paper's tables as data: every figure with its table, row, column and spread.

Where the paper contradicts itself both figures are here, each with where it stands: see :func:`contradictions`.
"""

from ucb.paper.contradictions import Contradiction, Stated, contradictions
from ucb.paper.tables import Figure, Row, Table, figures, table, tables

__all__ = ["Contradiction", "Figure", "Row", "Stated", "Table", "contradictions", "figures", "table", "tables"]
