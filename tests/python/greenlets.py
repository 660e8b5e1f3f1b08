"""Functions and regions of greenlets with planned times; checks its own figures. Argument: the
name under which `python -m pfp` measures this script, if it does."""

import os
import sys
import threading
import time

import pfp

# A region that is opened before greenlet is imported belongs to the main greenlet.
pfp.begin("around")

import greenlet

watched_as = sys.argv[1] if len(sys.argv) > 1 else None
measured = (lambda function: function) if watched_as else pfp.function
module = watched_as or "__main__"


def figures(name):
    return pfp.stats().get(f"{module}.{name}", {"count": 0, "exclusive": 0.0, "inclusive": 0.0})


def judge(name, count):
    assert figures(name)["count"] == count, (name, figures(name))


def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


# Two greenlets run in turn, with regions open inside them.
@measured
def first():
    with pfp.scope("first part"):
        spend(0.1)
        two.switch()
        spend(0.1)


@measured
def second():
    spend(0.3)
    one.switch()
    spend(0.3)


one, two = greenlet.greenlet(first), greenlet.greenlet(second)
one.switch()
two.switch()
judge("first", 1)
judge("second", 1)
parts = [figures(name)["inclusive"] for name in ("first", "second")]
parts.append(pfp.stats()["first part"]["inclusive"])
assert 2 < parts[1] / parts[0] < 4.5 and 2 < parts[1] / parts[2] < 4.5, parts


# Several greenlets run one function with a generator, and exceptions are thrown into some.
@measured
def steps(count):
    for step in range(count):
        main.switch(step)
        yield step


@measured
def stepping(count):
    return sum(steps(count))


main = greenlet.getcurrent()
several = [greenlet.greenlet(stepping) for _ in range(10)]
for it in several:
    it.switch(5)
for _ in range(4):
    for it in several:
        it.switch()
assert [it.switch() for it in several] == [10] * 10
judge("stepping", 10)
judge("steps", 60)


@measured
def fails():
    main.switch()


thrown = [greenlet.greenlet(fails) for _ in range(3)]
for it in thrown:
    it.switch()
for it in thrown[:2]:
    try:
        it.throw(KeyError)
    except KeyError:
        pass
del it
# The last greenlet ends when the last reference to it is dropped.
del thrown
judge("fails", 3)


# A forked child does not inherit the open regions of its parent's greenlets.
@measured
def forks():
    main.switch()
    child = os.fork()
    if not child:
        pfp.begin("child")
        pfp.end("child")
        main.switch("child")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


it = greenlet.greenlet(forks)
it.switch()
if it.switch() == "child":
    os._exit(0 if pfp.stats()["child"]["count"] == 1 and figures("forks")["count"] == 0 else 1)
judge("forks", 1)


# Each of several threads suspends more greenlets than a thread can have open regions.
@measured
def waits():
    greenlet.getcurrent().parent.switch()


@measured
def beside():
    pass


def many():
    suspended = [greenlet.greenlet(waits) for _ in range(1500)]
    for it in suspended:
        it.switch()
    for _ in range(1000):
        beside()
    for it in suspended:
        it.switch()


many()
threads = [threading.Thread(target=many) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
judge("waits", 6000)
judge("beside", 4000)


try:
    import gevent
except ImportError:
    pass
else:

    @measured
    def handle():
        with pfp.scope("handling"):
            gevent.sleep(0.01)

    gevent.joinall([gevent.spawn(handle) for _ in range(1500)])
    judge("handle", 1500)
    assert pfp.stats()["handling"]["count"] == 1500


# The program sets its own trace function, which is called exactly as it would be without pfp.
events = []
before = greenlet.settrace(lambda event, pair: events.append(event))


# That function replaces pfp's, so pfp misses the next switch. Only regions that are open across
# that switch are discarded.
@measured
def missed():
    main.switch()


def cross():
    several = [greenlet.greenlet(missed) for _ in range(3)]
    for it in several:
        it.switch()
    for it in several:
        it.switch()


if "replaced" in sys.argv:
    cross()
    cross()
    assert figures("missed")["count"] == 6, figures("missed")
    assert events.count("switch") == 24, events
    greenlet.settrace(before)
    cross()
    assert events.count("switch") == 24, events
    assert figures("missed")["count"] == 9, figures("missed")
else:
    greenlet.settrace(before)
pfp.end("around")
around = pfp.stats().get("around", {"count": 0})
assert around["count"] == ("replaced" not in sys.argv), around
print("all is as it was to be")
