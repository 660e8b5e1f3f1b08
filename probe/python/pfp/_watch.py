"""Which functions are points, and how the interpreter tells of them."""

import _thread
import fnmatch
import os
import site
import sys
import sysconfig
import threading
import time

from . import _pfp

PERIOD = 0.1
"""Seconds between two looks at which points were switched on again."""

_monitoring = getattr(sys, "monitoring", None)
_tool = None
_named = {}


def can_monitor():
    """Whether single functions can be watched: from Python 3.12 on."""
    return _monitoring is not None and _use_tool() is not None


def _use_tool():
    """An identity among the interpreter's tools; none if others have them all."""
    global _tool
    if _tool is not None:
        return _tool
    for tool in (_monitoring.PROFILER_ID, 3, 4):
        if _monitoring.get_tool(tool) is None:
            _monitoring.use_tool_id(tool, "pfp")
            break
    else:
        return None
    _tool = tool
    events = _monitoring.events
    _pfp.tell_off_by(_monitoring.DISABLE, _start_watcher)
    for event, callback in (
        (events.PY_START, _pfp.enter),
        (events.PY_RESUME, _pfp.enter),
        (events.PY_THROW, _pfp.throw),
        (events.PY_RETURN, _pfp.leave),
        (events.PY_YIELD, _pfp.leave),
        (events.PY_UNWIND, _pfp.unwind),
    ):
        _monitoring.register_callback(tool, event, callback)
    # These two come with exceptions alone, and cannot be asked for by function.
    _monitoring.set_events(tool, events.PY_THROW | events.PY_UNWIND)
    os.register_at_fork(after_in_child=_tell_all_again)
    return tool


def _local():
    events = _monitoring.events
    return events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD


def _start_watcher():
    # Not a thread of `threading`'s: the program counts and joins those.
    _thread.start_new_thread(_watch, ())


def _watch():
    """Runs while the interpreter does not tell of a function, until one is on again."""
    while not _pfp.is_on_again():
        time.sleep(PERIOD)
    _monitoring.restart_events()


def _tell_all_again():
    # A forked child has no watcher.
    _pfp.forget_told_off()
    _monitoring.restart_events()


def add_function(code, name):
    """Has one function measured, from its next call on."""
    _named[code] = name
    if _pfp.decides() is None:
        _pfp.decide_by(_decide_named)
    _monitoring.set_local_events(_use_tool(), code, _local())


def _decide_named(code):
    name = _named.get(code)
    return name and (name, code.co_filename, code.co_firstlineno)


class Choice:
    """Which code is the program's own, or was asked for."""

    def __init__(self, include=(), exclude=(), main="__main__", package=None):
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.main, self.package = main, package
        paths = sysconfig.get_paths()
        self.own = os.path.join(os.path.dirname(os.path.realpath(__file__)), "")
        self.others = tuple(
            os.path.join(os.path.realpath(path), "")
            for path in {
                paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"],
                *site.getsitepackages(), site.getusersitepackages(),
            }
            if path
        )

    def __call__(self, code):
        """Name, file and line of a function that is to be a point; none if it is not."""
        module = sys._getframe(1).f_globals.get("__name__") or "?"
        if not self.wants(module, code.co_filename):
            return None
        if module == "__main__":
            module = self.main
        name = getattr(code, "co_qualname", code.co_name)
        return f"{module}.{name}", code.co_filename, code.co_firstlineno

    def wants(self, module, file):
        def is_among(patterns):
            return any(
                fnmatch.fnmatchcase(module, pattern) or module.startswith(pattern + ".")
                for pattern in patterns
            )

        if os.path.realpath(file).startswith(self.own):
            return False
        if is_among(self.exclude):
            return False
        if is_among(self.include):
            return True
        if self.package and (module == self.package or module.startswith(self.package + ".")):
            return True
        if module == "__main__":
            return True
        return not file.startswith("<") and not os.path.realpath(file).startswith(self.others)


def start(choice):
    """Has all functions measured that are chosen, in all threads, from now on."""
    decide = choice if not _named else lambda code: _decide_named(code) or choice(code)
    _pfp.decide_by(decide)
    if _monitoring is not None:
        tool = _use_tool()
        if tool is None:
            raise RuntimeError(
                "expected a free place for a tool in sys.monitoring, found that others have all"
            )
        events = _monitoring.events
        _monitoring.set_events(tool, _local() | events.PY_THROW | events.PY_UNWIND)
    else:
        threading.setprofile(_pfp.profile_here)
        sys.setprofile(_pfp.profile_here)


def stop():
    """Measures no more functions that were only chosen."""
    if _monitoring is not None:
        events = _monitoring.events
        _monitoring.set_events(_tool, events.PY_THROW | events.PY_UNWIND)
    else:
        threading.setprofile(None)
        sys.setprofile(None)
