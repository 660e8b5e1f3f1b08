"""How much CPU time functions and regions of a program take themselves, live in pfp-top.

    import pfp

    with pfp.scope("parse"):
        ...

    @pfp.function
    def work(): ...

    with pfp.scope("read", bytes=len(block)):
        ...

`python -m pfp script.py` measures every function of a program, without changes to its source.
"""

import functools
import inspect
import operator
import os
import sys

if "t" in sys.abiflags:
    raise ImportError("pfp: expected an interpreter with a GIL, found a free-threaded build")

from . import _greenlets, _pfp
from ._pfp import begin, end, scope

_greenlets.start()

__all__ = [
    "begin",
    "disable",
    "enable",
    "end",
    "function",
    "keep",
    "keep_over",
    "scope",
    "snapshot",
    "stats",
]


def function(wrapped=None, *, name=None):
    """Measures each call of a function. Time between the steps of generators and coroutines does not
    count.

    The default of `name` is the module and the qualified name.
    """
    if wrapped is None:
        return functools.partial(function, name=name)
    if not callable(wrapped):
        raise TypeError(f"expected a function, found {type(wrapped).__name__}")
    name = name or f"{wrapped.__module__}.{wrapped.__qualname__}"
    from . import _watch

    if inspect.isfunction(wrapped) and _watch.add_function(wrapped, name):
        return wrapped
    return _wrapped(wrapped, name)


def _wrapped(wrapped, name):
    """Wraps a function, because the interpreter cannot report single functions."""
    code = getattr(wrapped, "__code__", None)
    region = _pfp.scope_at(name, *((code.co_filename, code.co_firstlineno) if code else ("", 0)))

    if inspect.iscoroutinefunction(wrapped):

        @functools.wraps(wrapped)
        async def call(*args, **kwargs):
            return await _Driven(region, wrapped(*args, **kwargs).__await__())

    elif inspect.isgeneratorfunction(wrapped):

        @functools.wraps(wrapped)
        def call(*args, **kwargs):
            return (yield from _Driven(region, wrapped(*args, **kwargs)))

    elif inspect.isasyncgenfunction(wrapped):
        # The steps of an asynchronous generator are measured as part of the code that awaits them.
        return wrapped

    else:

        @functools.wraps(wrapped)
        def call(*args, **kwargs):
            begin(region)
            try:
                return wrapped(*args, **kwargs)
            finally:
                end(region)

    return call


class _Driven:
    """Drives a generator, and measures each of its steps."""

    def __init__(self, region, steps):
        self.region, self.steps = region, steps

    def __iter__(self):
        return self

    __await__ = __iter__

    def __next__(self):
        return self.send(None)

    def send(self, value):
        begin(self.region)
        try:
            return self.steps.send(value)
        finally:
            end(self.region)

    def throw(self, *error):
        begin(self.region)
        try:
            return self.steps.throw(*error)
        finally:
            end(self.region)

    def close(self):
        self.steps.close()


_exit_at_once = os._exit


@functools.wraps(_exit_at_once)
def _exit(status):
    # Forked children of multiprocessing end with `os._exit`, which runs no exit handlers.
    status = operator.index(status)
    _pfp.end_in_order()
    _exit_at_once(status)


os._exit = _exit


def stats():
    """Returns the figures of all points with measurements, by name. Times are in seconds.

    If several points share a name, as lambdas do, their figures are summed.
    """
    fields = ("count", "exclusive", "inclusive", "off_cpu", "mean", "min", "max", "p50", "p99")
    return {name: dict(zip(fields, figures)) for name, *figures in _pfp.stats()}


def snapshot(path):
    """Writes all figures to a file that `pfp-top open`, `diff` and `export` read."""
    _pfp.snapshot(str(path))


def enable(name):
    """Switches all points with a name on. Returns their number."""
    return _pfp.switch(name, True)


def disable(name):
    """Switches all points with a name off. Returns their number."""
    return _pfp.switch(name, False)


def keep_over(name, seconds):
    """Keeps calls that take at least `seconds`, of all points with a name, for `pfp-top slow`.

    `None` stops that. The time counts by the clock, and is 1 us to 99 s, with two digits. Returns
    the number of points.
    """
    nanoseconds = 0 if seconds is None else max(1, round(seconds * 1e9))
    return _pfp.keep_over(name, nanoseconds)


def keep(why):
    """Keeps the innermost open region of the thread as it is now, with a reason."""
    _pfp.keep(why)
