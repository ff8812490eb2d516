"""How the time of something grows with its size: a bound that holds on a machine of any speed."""

import gc
import time

TIMES = 8
LINEAR = 24.0
"""What the growth must stay below: linear work grows ``TIMES`` fold, and quadratic ``TIMES`` squared."""


def growth(prepared, size):
    """How many times as long ``prepared(8 size)`` takes as ``prepared(size)``: functions, of which each is called."""
    return cost(prepared(TIMES * size)) / cost(prepared(size))


def cost(call):
    """The seconds of this process that a call takes, the least of five."""
    seconds = []
    gc.collect()
    gc.disable()  # a collection looks at all that other tests have left
    try:
        for _ in range(5):
            began = time.process_time()
            call()
            seconds.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(seconds)
