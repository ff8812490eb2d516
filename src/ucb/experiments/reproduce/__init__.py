"""The paper's tables, measured by us: what to run for each row, running it, and ours beside the paper's figures."""
