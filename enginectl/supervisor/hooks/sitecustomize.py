"""Makes SIGUSR2 print the stacks of all threads to stderr, in every Python process that a foreign engine starts.

The interpreter imports this by itself at its start, before anything of the engine; a sitecustomize that is installed
there still runs."""

import faulthandler
import importlib.machinery
import importlib.util
import os
import signal
import sys

try:
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
except (OSError, ValueError, RuntimeError):
    pass

_here = os.path.dirname(os.path.abspath(__file__))
_rest = [path for path in sys.path if os.path.abspath(path or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
