"""Works in child processes, which multiprocessing creates in the way that the argument names, and
exits with status 3."""

import multiprocessing
import sys

import pfp


def work(n):
    with pfp.scope("part"):
        return sum(i * i for i in range(n))


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        print(sum(pool.map(work, range(40), chunksize=1)))
        pool.close()
        pool.join()
    sys.exit(3)
