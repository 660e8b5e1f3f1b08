"""Cost of a call while all functions are measured, compared with other profilers; cost of regions.

    python probe/python/benches/calls.py

Each case runs in its own process, in turn for many rounds; the minimum counts. yappi and VizTracer
are included if they are installed.
"""

import importlib.util
import subprocess
import sys
import time

ROUNDS = 15
CALLS = 200_000


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def leaf():
    pass


def leaves(count=CALLS):
    for _ in range(count):
        leaf()


def pairs(count=CALLS):
    import pfp

    begin, end, region = pfp.begin, pfp.end, pfp.scope("pair")
    for _ in range(count):
        begin(region)
        end(region)


def withs(count=CALLS):
    import pfp

    region = pfp.scope("with")
    for _ in range(count):
        with region:
            pass


def named(count=CALLS):
    import pfp

    for _ in range(count):
        with pfp.scope("named"):
            pass


def nothing(count=CALLS):
    for _ in range(count):
        pass


def decorated():
    import pfp

    global leaf
    leaf = pfp.function(leaf)
    leaf()
    return leaves


def bare():
    return leaves


def watched(off=False):
    from pfp import _watch

    _watch.start(_watch.Choice())
    leaf()
    if off:
        import pfp

        leaf(), leaves(1)
        assert pfp.disable("__main__.leaf") and pfp.disable("__main__.leaves")
    leaves(10)
    return leaves


def watched_and_off():
    return watched(off=True)


def cprofile():
    import cProfile

    cProfile.Profile().enable()
    return leaves


def with_yappi():
    import yappi

    yappi.set_clock_type("cpu")
    yappi.start()
    return leaves


def viztracer():
    import viztracer

    global tracer
    tracer = viztracer.VizTracer(verbose=0, ignore_c_function=True)
    tracer.start()
    return leaves


CASES = {
    "an empty loop": lambda: nothing,
    "a call, bare": bare,
    "python -m pfp": watched,
    "python -m pfp, switched off": watched_and_off,
    "@pfp.function": decorated,
    "cProfile": cprofile,
    "yappi, CPU clock": with_yappi,
    "VizTracer": viztracer,
    "pfp.begin, pfp.end": lambda: pairs,
    "with a scope that is kept": lambda: withs,
    'with pfp.scope("name")': lambda: named,
}
NEEDS = {"yappi, CPU clock": "yappi", "VizTracer": "viztracer"}


def serve(name):
    run = CASES[name]()
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        run()
        print((time.perf_counter_ns() - start) / CALLS, flush=True)


def main():
    names = [name for name in CASES if not NEEDS.get(name) or importlib.util.find_spec(NEEDS[name])]
    workers = [
        subprocess.Popen([sys.executable, __file__, name], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    least = [float("inf")] * len(names)
    for _ in range(ROUNDS):
        for at, worker in enumerate(workers):
            print(file=worker.stdin, flush=True)
            least[at] = min(least[at], float(worker.stdout.readline()))
    for worker in workers:
        worker.kill()
    least = dict(zip(names, least))
    loop, bare = least["an empty loop"], least["a call, bare"]
    print(f"\nPython {sys.version.split()[0]}\n")
    print("| | ns | more than without |\n|---|---:|---:|")
    for name, ns in least.items():
        is_region = "scope" in name or "begin" in name
        print(f"| {name} | {ns:.1f} | {ns - (loop if is_region else bare):.1f} |")


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) > 1 else main()
