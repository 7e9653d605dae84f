"""An interrupt that comes while a function of the library runs. Python hears of it after the call."""

import contextlib
import ctypes
import functools
import os
import signal
from unittest import mock

from specd import _library


@contextlib.contextmanager
def interrupted_after(name, is_called=True):
    """The function `name` of the library ends with SIGINT, in C as a real signal does. If not
    is_called, the signal is all that it does, and its code is SPECD_ERROR_INTERNAL."""
    real = _library.load()
    function = ctypes.CDLL(os.environ["SPECD_LIBRARY"])[name]  # another object than real's
    function.argtypes = getattr(real, name).argtypes
    send = ctypes.CDLL(None)["raise"]  # it returns 0
    # The restype is called with what the function returns; raise ignores this second argument.
    function.restype = functools.partial(send, signal.SIGINT)
    if not is_called:
        function = functools.partial(send, signal.SIGINT)
        send.restype = (-12).__add__

    class Library:
        def __getattr__(self, asked):
            return function if asked == name else getattr(real, asked)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with mock.patch.object(_library, "load", lambda: Library()):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
