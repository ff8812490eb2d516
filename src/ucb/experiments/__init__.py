"""Experiments with runs: settings searched, the paper's tables reproduced, pages drawn, training steps timed."""
