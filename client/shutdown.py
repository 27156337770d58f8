"""Makes the interpreter's end safe while threads of Temporal's core run.

A thread of the core enters the interpreter to hand over each answer. One that is inside when the interpreter is
finalized aborts the process; one that comes later waits for ever, and whoever then drops the core waits for it.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import time
from functools import cache
from weakref import WeakSet

from temporalio.runtime import Runtime

LONGEST_SECONDS = 2.0  # another library may keep a thread in the interpreter for good
PAUSE_SECONDS = 0.001  # each pause gives the interpreter's lock away

_RUNTIMES: WeakSet[Runtime] = WeakSet()


def prepare_exit(runtime: Runtime) -> None:
    """Makes the process end well although this runtime was used."""
    _RUNTIMES.add(runtime)
    _register()


@cache
def _register() -> None:
    atexit.register(_release_core, count_outer_threads())


def _release_core(outer_before: int) -> None:
    """Waits until the core's threads have left the interpreter, and keeps the core from being dropped."""
    deadline = time.monotonic() + LONGEST_SECONDS
    time.sleep(PAUSE_SECONDS)
    while count_outer_threads() > outer_before and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
    for runtime in _RUNTIMES:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(runtime))


def count_outer_threads() -> int:
    """Returns how many threads are in the interpreter that Python has not started itself."""
    states, own = 0, 1 + _thread._count()
    state = _HEAD(_INTERPRETER())
    while state:  # nobody can leave the list meanwhile: that takes the interpreter's lock, which is ours
        states, state = states + 1, _NEXT(state)
    return max(0, states - own)


_INTERPRETER = ctypes.pythonapi.PyInterpreterState_Get
_HEAD = ctypes.pythonapi.PyInterpreterState_ThreadHead
_NEXT = ctypes.pythonapi.PyThreadState_Next
for _function, _arguments in ((_INTERPRETER, []), (_HEAD, [ctypes.c_void_p]), (_NEXT, [ctypes.c_void_p])):
    _function.restype, _function.argtypes = ctypes.c_void_p, _arguments
