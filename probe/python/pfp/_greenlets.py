"""Makes the native half follow greenlets when the program imports `greenlet`."""

import sys

from . import _pfp

NATIVE = "greenlet._greenlet"


class _Finder:
    """Finds greenlet's native half through the other finders, to learn when it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != NATIVE:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    sys.meta_path.remove(self)
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)
                    return spec
        return None


class _Loader:
    """Loads a module with its own loader, and then follows greenlets."""

    def __init__(self, own):
        self.own = own

    def create_module(self, spec):
        return self.own.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        _follow(module)


def _follow(module):
    try:
        _pfp.follow_greenlets(module)
    except (AttributeError, ValueError):
        # This version of greenlet lacks these functions, so all greenlets share their thread's
        # regions.
        pass


def start():
    module = sys.modules.get(NATIVE)
    if module is not None:
        _follow(module)
    else:
        sys.meta_path.insert(0, _Finder())
