"""Forks children that end without exit handlers, as those of multiprocessing do."""

import concurrent.futures
import multiprocessing
import os
import sys

import pfp


@pfp.function
def work(n):
    return n


def ready():
    work(0)


if __name__ == "__main__":
    way, count = sys.argv[1], 3
    work(0)
    if way == "executor":
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(count, context, ready) as pool:
            # All workers start before the first task is done.
            list(pool.map(work, range(40)))
    elif way == "os":
        for _ in range(count):
            child = os.fork()
            if child == 0:
                work(0)
                os._exit(7)
            assert os.waitpid(child, 0)[1] == 7 << 8
    else:
        context = multiprocessing.get_context(way)
        children = [context.Process(target=ready) for _ in range(count)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    try:
        os._exit("seven")
    except TypeError:
        pass
    # pfp still measures after the failed call.
    assert pfp.stats()["__main__.work"]["count"] >= 1
