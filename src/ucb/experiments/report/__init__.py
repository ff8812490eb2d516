"""One page about runs: charts and tables in a file that needs no network."""

from ucb.experiments.report.page import HOW_TO_INSTALL, can_draw, page_of, write_page
from ucb.experiments.report.results import FoundResult, results_at

__all__ = ["HOW_TO_INSTALL", "FoundResult", "can_draw", "page_of", "results_at", "write_page"]
