"""Like src/bin/slow.rs, in Python: `slow.py CAUSE SEED NOTES`. The causes are sleep, lock and ran.

The threads run one after the other: side by side, calls that wait for the interpreter's lock are
slow, too.
"""

import random
import sys
import threading
import time

import pfp

THREADS = 4
CALLS = 5000

cause, seed, notes = sys.argv[1:]
# On a busy machine, other calls are slow, too. Each further try is slower.
SLOW = 0.02 * (1 + int(seed) // 1000)
chosen = random.Random(int(seed))
planted = chosen.randrange(THREADS), chosen.randrange(CALLS // 10, CALLS * 9 // 10)
planted_level = chosen.randrange(3)
levels = [pfp.scope(name) for name in ("request", "step", "detail")]
lock = threading.Lock()
noted = []


def hold(is_held):
    with lock:
        is_held.set()
        time.sleep(SLOW)


def spend():
    if cause == "sleep":
        time.sleep(SLOW)
    elif cause == "lock":
        is_held = threading.Event()
        holder = threading.Thread(target=hold, args=[is_held])
        holder.start()
        is_held.wait()
        with lock:
            pass
        holder.join()
    else:
        begin = time.thread_time()
        while time.thread_time() - begin < SLOW:
            pass


def plant():
    begin, cpu = time.monotonic_ns(), time.thread_time_ns()
    spend()
    end = time.time_ns() // 1_000_000
    wall, cpu = time.monotonic_ns() - begin, time.thread_time_ns() - cpu
    noted.extend([threading.get_native_id(), end, wall, cpu, planted_level])


def request(level, is_slow):
    with levels[level]:
        if is_slow and level == planted_level:
            plant()
        if level + 1 < len(levels):
            request(level + 1, is_slow and level < planted_level)
            request(level + 1, False)


def run(thread):
    for call in range(CALLS):
        request(0, (thread, call) == planted)


request(0, False)  # the point exists from its first region on
assert pfp.keep_over("request", 0.005) == 1
for number in range(THREADS):
    thread = threading.Thread(target=run, args=[number])
    thread.start()
    thread.join()
with open(notes, "w") as file:
    file.write(" ".join(map(str, noted)))
