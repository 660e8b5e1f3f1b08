"""Code that is compiled at run time is counted exactly, and is freed once the program drops it.
Checks its own figures, under `python -m pfp`."""

import collections
import gc
import weakref

import pfp

EVALS = 40_000


def figures(end):
    return [(name, its["count"]) for name, its in pfp.stats().items() if name.endswith(end)]


before = len(pfp.stats())
for n in range(EVALS):
    eval(f"{n} + 1")
for n in range(1000):
    collections.namedtuple("Pair", "x y")
    exec(compile(f"def numbered(): {n}\nnumbered()", f"<template {n}>", "exec"))
    # The function is on another line each time.
    exec("\n" * n + "@pfp.function\ndef marked(): pass\nmarked()")
module = "made.<module>"
# The script itself is another point of this name. Its call has not ended, so it adds no count.
assert pfp.stats()[module]["count"] == EVALS + 2000, pfp.stats()[module]
assert figures(".numbered") == [("made.numbered", 1000)], figures(".numbered")
assert figures("marked") == [("__main__.marked", 1000)], figures("marked")
made = len(pfp.stats()) - before
assert made < 12, sorted(pfp.stats())

# Code that is compiled later is measured.
exec("def late(x):\n    return x + 1")
for n in range(1000):
    late(n)
assert figures(".late") == [("made.late", 1000)], figures(".late")

# Nothing keeps the code object alive.
code = compile("1 + 1", "<string>", "eval")
eval(code)
gone = weakref.ref(code)
del code
gc.collect()
assert gone() is None
print("all is as it was to be")
