"""`python -m pfp script.py ARGS`, `python -m pfp -m module ARGS`."""

import argparse
import os
import runpy
import sys

from . import _watch


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m pfp",
        usage="python -m pfp [--include MODULE] [--exclude MODULE] (SCRIPT | -m MODULE) [ARGS ...]",
        description="Measures every function of a program's own code; pfp-top shows them live.",
    )
    parser.add_argument("--include", action="append", default=[], metavar="MODULE",
                        help="also measure this module and its submodules; * and ? as in file "
                             "names")
    parser.add_argument("--exclude", action="append", default=[], metavar="MODULE",
                        help="do not measure this module and its submodules")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    # The program's own arguments follow its name.
    own, at = [], 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-m":
        takes_one = arguments[at] in ("--include", "--exclude")
        own += arguments[at:at + 1 + takes_one]
        at += 1 + takes_one
    if arguments[at:at + 1] == ["-m"]:
        own.append("-m")
        at += 1
    options = parser.parse_args(own)
    if at >= len(arguments):
        parser.error("expected a script, or -m and a module, found neither")
    return options, arguments[at], arguments[at + 1:]


def main():
    options, program, arguments = parse(sys.argv[1:])
    sys.argv = [program, *arguments]
    if options.module:
        package = program.partition(".")[0]
        choice = _watch.Choice(options.include, options.exclude, program, package)
        # Like python -m: modules in the working directory can be imported.
        sys.path[0] = os.getcwd()
        run = lambda: runpy.run_module(program, run_name="__main__", alter_sys=True)  # noqa: E731
    else:
        if not os.path.exists(program):
            sys.exit(f"python -m pfp: expected a script or a folder with one, found no {program!r}")
        stem = os.path.splitext(os.path.basename(program))[0]
        choice = _watch.Choice(options.include, options.exclude, stem)
        sys.path[0] = os.path.dirname(os.path.realpath(program))
        run = lambda: runpy.run_path(program, run_name="__main__")  # noqa: E731
    try:
        _watch.start(choice)
    except RuntimeError as error:
        sys.exit(f"python -m pfp: {error}")
    try:
        run()
    finally:
        _watch.stop()


main()
