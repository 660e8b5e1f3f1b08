"""Prints how often cProfile has seen each function: count, line, file and name, one line each."""

import pstats
import sys

for (file, line, name), (_, calls, *_) in pstats.Stats(sys.argv[1]).stats.items():
    print(calls, line, file, name, sep="\t")
