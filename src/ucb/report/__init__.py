"""One page about runs: charts and tables in a file that needs no network."""

from ucb.report.page import HOW_TO_INSTALL, can_draw, page_of, write_page
from ucb.report.reading import Found, results_at

__all__ = ["HOW_TO_INSTALL", "Found", "can_draw", "page_of", "results_at", "write_page"]
