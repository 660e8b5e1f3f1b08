"""Regions and functions of all kinds, with exact counts; checks its own figures. Arguments: the
file for a snapshot, and the name under which `python -m pfp` measures this script, if it does."""

import asyncio
import contextlib
import dis
import json
import os
import sys
import threading
import time

import pfp


watched_as = sys.argv[2] if len(sys.argv) > 2 else None


def count(name):
    return pfp.stats().get(name, {"count": 0})["count"]


def until(is_so):
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < 60
        time.sleep(0.01)


# Scopes: nested, by name, stored in a variable, with amounts, by hand, left by an exception.
for _ in range(100):
    with pfp.scope("outer"):
        with pfp.scope("inner"):
            pass
kept = pfp.scope("kept")
assert kept is pfp.scope("kept") and isinstance(kept, type(pfp.scope("inner")))
for n in range(10):
    with pfp.scope("read", bytes=n, items=2.6):
        pfp.begin(kept)
        pfp.end(kept)
pfp.begin("by name")
pfp.end("by name")
try:
    with pfp.scope("raised"):
        raise KeyError
except KeyError:
    pass
for scope in [kept, pfp.scope("read", bytes=1, items=1)]:
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(scope) is scope
for name, expected in [("outer", 100), ("inner", 100), ("kept", 11), ("by name", 1), ("raised", 1)]:
    assert count(name) == expected, (name, count(name))
assert sum(figures["count"] for name, figures in pfp.stats().items() if name.startswith("read")) == 11

# Wrong arguments raise an error, and begin nothing.
for wrong, said in [
    (lambda: pfp.scope(), "expected one name"),
    (lambda: pfp.scope(3), "expected a name"),
    (lambda: pfp.scope("read", other=1), "expected the amounts that the scope had before"),
    (lambda: pfp.scope("outer", bytes=1), "expected no amounts"),
    (lambda: pfp.scope("many", a=1, b=2, c=3, d=4, e=5), "expected at most 4 amounts, found 5"),
    (lambda: pfp.begin(7), "expected a name"),
    (lambda: pfp.snapshot("/nowhere/at/all.json"), "/nowhere/at/all.json"),
    (lambda: pfp.function(3), "expected a function, found int"),
    (lambda: type(kept)(), "cannot create"),
    (lambda: object.__new__(type(kept)), "not safe"),
    (lambda: type(kept).__enter__(3), "doesn't apply to a 'int'"),
    (lambda: vars(type(kept))["__exit__"].__get__(3)(3), "doesn't apply to a 'int'"),
]:
    try:
        wrong()
    except (TypeError, ValueError, OSError) as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)


# Functions: recursion, exceptions, generators, coroutines, methods, threads.
@pfp.function
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@pfp.function(name="deep")
def dive(depth):
    return depth and dive(depth - 1)


@pfp.function
def fails():
    raise ValueError("as it may")


@pfp.function
def steps(count):
    for step in range(count):
        yield step


def burn():
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        sum(range(1000))


@pfp.function
async def waits(done):
    await done.wait()
    return 7


async def burns_beside():
    done = asyncio.Event()
    waiting = asyncio.create_task(waits(done))
    await asyncio.sleep(0)
    burn()
    done.set()
    return await waiting


class Thing:
    @pfp.function
    def method(self, by):
        return self, by


sys.setrecursionlimit(3000)
assert fib(12) == 144 and fib.__name__ == "fib"
dive(700)
for _ in range(5):
    try:
        fails()
    except ValueError:
        pass
assert list(steps(4)) == [0, 1, 2, 3]
assert asyncio.run(burns_beside()) == 7
thing = Thing()
assert thing.method(by=2) == (thing, 2)
threads = [threading.Thread(target=fib, args=(5,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for name, expected in [
    ("__main__.fib", 465 + 4 * 15),
    ("deep", 701),
    ("__main__.fails", 5),
    ("__main__.steps", 5),
    ("__main__.waits", 2),
    ("__main__.Thing.method", 1),
]:
    assert count(name) == expected, (name, count(name))
for name in ["fib", "dive", "fails", "steps", "waits", "Thing.method", "method"]:
    assert count(f"{watched_as}.{name}") == 0, name
# The time while a coroutine waits does not count for the coroutine.
assert pfp.stats()["__main__.waits"]["exclusive"] < 0.1, pfp.stats()["__main__.waits"]
if watched_as:
    assert pfp.stats()[f"{watched_as}.burn"]["exclusive"] > 0.2, pfp.stats()


# Points that share a name share their figures, and functions that share code do not.
def closure(name):
    @pfp.function(name=name)
    def inner(): ...

    return inner


def late(): ...


for function, calls in [(pfp.function(lambda: 1), 1), (pfp.function(lambda: 2), 2)]:
    for _ in range(calls):
        function()
for name in ["first", "second", "first"]:
    closure(name)()
late()
late = pfp.function(late, name="late")
late()
for name, expected in [("__main__.<lambda>", 3), ("first", 2), ("second", 1), ("late", 1)]:
    assert count(name) == expected, (name, count(name))
if watched_as:
    assert count(f"{watched_as}.late") == 1

# Two threads take turns with the interpreter's lock. Waiting for the lock is off the CPU.
burn = pfp.function(burn, name="burn")
start = threading.Barrier(2)
threads = [threading.Thread(target=lambda: (start.wait(), burn())) for _ in range(2)]
before = time.process_time()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
spent = time.process_time() - before
figures = pfp.stats()["burn"]
assert 0.8 * 0.6 < figures["exclusive"] < 1.1 * spent, (figures, spent)
assert figures["off_cpu"] > 0.2, figures

# Keeps calls over a time, and an open region. The file of the last figures has them.
assert pfp.keep_over("nobody", 0.005) == 0
with pfp.scope("slow"):
    pass
assert pfp.keep_over("slow", 0.005) == 1
with pfp.scope("slow"):
    time.sleep(0.02)
assert pfp.keep_over("slow", None) == 1
with pfp.scope("slow"):
    pfp.keep("asked")
    time.sleep(0.02)
pfp.snapshot("slow.json")
with open("slow.json") as file:
    saved = json.load(file)
names = {point["id"]: point["name"] for point in saved["points"]}
slow = [call for call in saved["slow"] if names[call["point"]] == "slow"]
assert [call.get("why", "") for call in slow] == ["", "asked"], slow
assert slow[0]["limit"] == {"ns": 5_000_000} and slow[0]["off_cpu"] > 0, slow

# Disables and enables again. pfp runs a thread only while a point is disabled.
until(lambda: len(os.listdir("/proc/self/task")) == 1)
before = count("__main__.fib")
assert pfp.disable("__main__.fib") == 1 and pfp.disable("nobody") == 0
fib(8)
assert count("__main__.fib") == before
assert pfp.enable("__main__.fib") == 1
start = time.monotonic()
while count("__main__.fib") == before:
    assert time.monotonic() - start < 60, "it stays off"
    fib(3)
    time.sleep(0.01)

while len(os.listdir("/proc/self/task")) > 1:
    assert time.monotonic() - start < 60, "the watcher runs on"
    time.sleep(0.01)

# From Python 3.12 on, a disabled function runs the same instructions as without pfp.
if hasattr(sys, "monitoring"):

    def instructions(function):
        found = dis.get_instructions(function, adaptive=True)
        # Once Python 3.12 has split a combined instruction, it never combines it again.
        return [instruction.opname.partition("__")[0] for instruction in found]

    source = "def busy(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total"
    bare, busy = {}, {}
    exec(source, bare)
    exec(source, busy)
    bare, busy = bare["busy"], pfp.function(busy["busy"], name="busy")

    def run_both():
        for _ in range(100):
            bare(7)
            busy(7)

    run_both()
    assert instructions(bare) != instructions(busy) and count("busy") == 100
    pfp.disable("busy")
    run_both()
    assert instructions(bare) == instructions(busy) and count("busy") == 100
    pfp.enable("busy")

# A forked child has its own figures, also for functions that are disabled at the fork.
pfp.disable("__main__.fib")
fib(5)
if child := os.fork():
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    with pfp.scope("child"):
        pass
    pfp.enable("__main__.fib")
    fib(5)
    os._exit(0 if [count(name) for name in ("child", "__main__.fib", "outer")] == [1, 15, 0] else 1)
pfp.snapshot(sys.argv[1])
print("all is as it was to be")
