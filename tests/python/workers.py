"""Children that work, and a status at the end."""

import multiprocessing
import sys


def work(n):
    return sum(i * i for i in range(n))


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(sum(pool.map(work, range(40), chunksize=1)))
        pool.close()
        pool.join()
    sys.exit(3)
