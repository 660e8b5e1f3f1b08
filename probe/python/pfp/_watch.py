"""Selects the functions that are points, and makes the interpreter report their calls."""

import _thread
import fnmatch
import functools
import os
import site
import sys
import sysconfig
import threading
import time

from . import _pfp

PERIOD = 0.1
"""Seconds between two checks for points that were switched on again."""

MAIN = "__main__", "__mp_main__"
"""Names of the program's main module, here and in new interpreters of multiprocessing."""

_monitoring = getattr(sys, "monitoring", None)
_tool = None
_is_hooked = False
_copies = {}


def _use_tool():
    """Returns an id among the interpreter's tools, or None if others use all of them."""
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
    _pfp.set_disable(_monitoring.DISABLE, _start_watcher)
    for event, callback in (
        (events.PY_START, _pfp.enter),
        (events.PY_RESUME, _pfp.enter),
        (events.PY_THROW, _pfp.throw),
        (events.PY_RETURN, _pfp.leave),
        (events.PY_YIELD, _pfp.leave),
        (events.PY_UNWIND, _pfp.unwind),
    ):
        _monitoring.register_callback(tool, event, callback)
    # These two events occur only with exceptions, and cannot be enabled for single functions.
    _monitoring.set_events(tool, events.PY_THROW | events.PY_UNWIND)
    os.register_at_fork(after_in_child=_restart_events)
    return tool


def _local():
    events = _monitoring.events
    return events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD


def _start_watcher():
    # Does not use `threading`, because programs count and join the threads of that module.
    _thread.start_new_thread(_watch, ())


def _watch():
    """Runs while events of any function are stopped, until a point is switched on again."""
    while not _pfp.is_on_again():
        time.sleep(PERIOD)
    _monitoring.restart_events()


def _restart_events():
    # A forked child has no watcher, so the events of all functions are started again.
    _pfp.forget_disabled()
    _monitoring.restart_events()


def add_function(function, name):
    """Measures one function from its next call on.

    Returns False if the interpreter cannot report it: before Python 3.12, the interpreter reports
    either all functions or none.
    """
    code = function.__code__
    place = code.co_filename, code.co_firstlineno
    if not _is_hooked and (_monitoring is None or _use_tool() is None):
        # A wrapper will measure the function, so a hook that is set later must not measure it
        # again.
        _pfp.name_function(code, None, *place)
        return False
    if not _pfp.name_function(code, name, *place):
        # The function was called before it had this name, or it is a closure that shares its code
        # with a function of another name.
        key = id(code), name
        if key not in _copies:
            # The first code object is kept alive, so that no other code object gets its address.
            _copies[key] = code, code.replace()
            _pfp.name_function(_copies[key][1], name, *place)
        function.__code__ = code = _copies[key][1]
    if _monitoring is not None:
        _monitoring.set_local_events(_tool, code, _local())
    return True


class Choice:
    """Selects the program's own code, and code that the user includes."""

    def __init__(self, include=(), exclude=(), main="__main__", package=None):
        self.given = include, exclude, main, package
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.main, self.package = main, package
        paths = sysconfig.get_paths()
        self.known = {}
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
        """Returns name, file and line of a function's point, or None if it is not measured."""
        module = sys._getframe(1).f_globals.get("__name__") or "?"
        if not self.wants(module, code.co_filename):
            return None
        if module in MAIN:
            module = self.main
        name = getattr(code, "co_qualname", code.co_name)
        return f"{module}.{name}", code.co_filename, code.co_firstlineno

    def wants(self, module, file):
        def is_among(patterns):
            return any(
                fnmatch.fnmatchcase(module, pattern) or module.startswith(pattern + ".")
                for pattern in patterns
            )

        is_own, is_others = self.belongs(file)
        if is_own:
            return False
        if is_among(self.exclude):
            return False
        if is_among(self.include):
            return True
        if self.package and (module == self.package or module.startswith(self.package + ".")):
            return True
        if module in MAIN:
            return True
        return not file.startswith("<") and not is_others

    def belongs(self, file):
        """Whether a file belongs to this package, and whether to the interpreter or any package."""
        if file.startswith("<"):
            return False, False
        found = self.known.get(file)
        if found is None:
            path = os.path.realpath(file)
            found = path.startswith(self.own), path.startswith(self.others)
            self.known[file] = found
        return found


def start(choice):
    """Measures all functions that `choice` selects, in all threads and children, from now on."""
    global _is_hooked
    _pfp.decide_by(choice)
    if _monitoring is not None and _use_tool() is None:
        raise RuntimeError(
            "expected a free tool id in sys.monitoring, found that other tools use all of them"
        )
    _follow_children(choice)
    if _monitoring is not None:
        events = _monitoring.events
        _monitoring.set_events(_tool, _local() | events.PY_THROW | events.PY_UNWIND)
    else:
        threading.setprofile(_pfp.profile_here)
        sys.setprofile(_pfp.profile_here)
        _is_hooked = True


def stop():
    """Stops measuring functions that only `choice` selected."""
    global _is_hooked
    if _monitoring is not None:
        events = _monitoring.events
        _monitoring.set_events(_tool, events.PY_THROW | events.PY_UNWIND)
    else:
        threading.setprofile(None)
        sys.setprofile(None)
        _is_hooked = False


# ---- children of multiprocessing that are new interpreters ----

_IN_CHILD = """\
try:
    from pfp import _watch
except ImportError:
    pass
else:
    _watch.start_in_child({!r})
"""


class _InChild:
    """Starts measuring in the child that unpickles it, if the child finds this package."""

    def __init__(self, choice):
        self.choice = choice

    def __reduce__(self):
        return exec, (_IN_CHILD.format(self.choice.given), {})


def _follow_children(choice):
    """Adds `_InChild` to the data that a new interpreter of multiprocessing unpickles first."""
    try:
        from multiprocessing import spawn
    except ImportError:
        # Some distributions have multiprocessing in a separate package.
        return
    prepare = spawn.get_preparation_data

    @functools.wraps(prepare)
    def get_preparation_data(name):
        return {**prepare(name), "pfp": _InChild(choice)}

    spawn.get_preparation_data = get_preparation_data


def start_in_child(given):
    try:
        start(Choice(*given))
    except RuntimeError:
        # Other tools occupy all slots in the child, so the child runs without this tool.
        pass
