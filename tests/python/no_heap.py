"""Calls each function of the package while the allocator refuses the native half its n-th request
for memory, for each n: first only that request, then all later ones, too. A call then raises
`MemoryError` or works without the memory."""

import contextlib
import ctypes
import itertools

import pfp
from pfp import _pfp

allocator = ctypes.CDLL(None)
names = map("name {}".format, itertools.count())


def scopes():
    with pfp.scope(next(names)):
        pass
    with pfp.scope(next(names), bytes=3, items=4):
        pass
    with _pfp.scope_at(next(names), "folder/../file.py", 3):
        pass


def functions():
    name = next(names).replace(" ", "_")
    code = compile(f"def {name}(): pass\n{name}()\npfp.function({name})()", f"<{name}>", "exec")
    exec(code, {"pfp": pfp})


def figures():
    # `stats` leaves out a point if there is no memory for its figures.
    assert pfp.stats().get("first", {"count": 1})["count"] == 1
    pfp.disable("first")
    pfp.enable("first")


def snapshot():
    pfp.snapshot("snapshot.json")


def errors():
    for call in (lambda: pfp.begin(3), lambda: pfp.scope(), lambda: pfp.scope("first", bytes=1)):
        with contextlib.suppress(TypeError, ValueError):
            call()
    with contextlib.suppress(OSError):
        pfp.snapshot("/nowhere/snapshot.json")


def refused(call, n, for_good):
    allocator.refuse_from(n, for_good)
    try:
        call()
    except MemoryError:
        pass
    return allocator.grant()


with pfp.scope("first"):
    pass
for call in (scopes, functions, figures, snapshot, errors):
    for for_good in (0, 1):
        asked = next(n for n in itertools.count() if not refused(call, n, for_good))
        assert asked > 3, (call, asked)
    call()
print("all is as it was to be")
