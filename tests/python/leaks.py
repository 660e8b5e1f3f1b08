"""Regions that allocate much and free all of it, but for one, whose list keeps growing:
`leaks.py SNAPSHOT SIZE` writes a snapshot, and the bytes of the list and of what is in it."""

import json
import sys

import pfp

parse, render, log = pfp.scope("parse"), pfp.scope("render"), pfp.scope("log")
kept = []

for number in range(4000):
    with parse:
        json.loads('[1, {"key": [2, 3]}]')
        bytes(3000)
    with render:
        ", ".join(str(n) for n in range(200))
    with log:
        kept.append(bytes(1000 + number % 7))

# The snapshot is taken here, since the interpreter frees the list when it ends.
pfp.snapshot(sys.argv[1])
size = sys.getsizeof(kept) + sum(sys.getsizeof(item) for item in kept)
with open(sys.argv[2], "w") as file:
    file.write(str(size))
