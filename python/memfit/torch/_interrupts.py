"""When an interrupt (SIGINT, Ctrl-C) reaches the program while a budget is active."""

import os
import signal
import threading
from typing import Any

_FOLDER = os.path.dirname(__file__) + os.sep


class Interrupts:
    """Has an interrupt wait where it would leave something half done.

    While a budget begins or ends it waits for the end of that; while bytes are moved, and within memfit's
    own lines, for the end of the op or for the next one. Then it reaches the handler that the program had.
    """

    def __init__(self) -> None:
        self._native: Any = None
        self._previous: Any = None
        self._held = self._late = False

    def hold(self) -> None:
        """From here on interrupts wait."""
        self._held = True
        if threading.current_thread() is threading.main_thread():
            previous = signal.getsignal(signal.SIGINT)
            if callable(previous) and previous != self._handle:
                self._late, self._previous = False, previous
                signal.signal(signal.SIGINT, self._handle)

    def release(self, native: Any) -> None:
        """From here on they wait for ops alone: `native` knows of these."""
        self._native, self._held = native, False
        if self._late:
            self._late = False
            native.defer_interrupt(True)

    def retake(self) -> None:
        """Undoes `release`: what waits for an op waits for `end`."""
        self.hold()
        # Not `|=`, which reads before it asks: one that comes in between would be lost.
        if self._native is not None and self._native.take_interrupt():
            self._late = True

    def end(self) -> None:
        """The program's own handler is back; it hears of what has waited."""
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._previous)
        self._native, self._held = None, False
        late, self._late = self._late, False
        if late:
            self.deliver()

    def deliver(self) -> None:
        """What has waited reaches the program's handler."""
        self._previous(signal.SIGINT, None)

    def _handle(self, number: int, frame: Any) -> None:
        own = frame is not None and frame.f_code.co_filename.startswith(_FOLDER)
        if self._held or self._native is None:
            self._late = True
        elif not self._native.defer_interrupt(own):
            self._previous(number, frame)
