# SPDX-License-Identifier: Apache-2.0
"""The program behind `tracing`: follows one process with ptrace(2) and kills it in time.

    python tracer.py PID FAMILY NUMBER

Its lines on stdout are `ready` once all threads are followed, `struck` when it kills, or
one that says why it cannot trace. It ends with the process; if it ends before, the
process goes on as if nothing had been. It imports little, since it is started often.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

# Numbers of <asm/unistd.h>; aarch64 has no rename and unlink of its own.
_NUMBERS = {
    "x86_64": {
        "fsync": (74, 75),  # fsync, fdatasync
        "rename": (82, 264, 316),  # rename, renameat, renameat2
        "unlink": (87, 263),  # unlink, unlinkat
        "sendmsg": (46, 44, 307),  # sendmsg, sendto, sendmmsg
        "write": (1, 18, 20),  # write, pwrite64, writev
    },
    "aarch64": {
        "fsync": (82, 83),
        "rename": (38, 276),
        "unlink": (35,),
        "sendmsg": (211, 206, 269),
        "write": (64, 68, 66),
    },
}
FAMILIES: dict[str, tuple[int, ...]] = _NUMBERS.get(os.uname().machine, {})
"""System calls by family; empty on machines whose numbers are not listed."""

# <sys/ptrace.h>
_SYSCALL = 24
_SEIZE = 0x4206
_INTERRUPT = 0x4207
_LISTEN = 0x4208
_GET_SYSCALL_INFO = 0x420E
_O_TRACESYSGOOD = 1
_O_TRACECLONE = 8
_EVENT_STOP = 128
_INFO_ENTRY = 1
_WALL = 0x40000000
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_GROUP_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class _SyscallInfo(ctypes.Structure):
    """The head of struct ptrace_syscall_info and of its member `entry`."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, thread: int, address: int = 0, value: int = 0) -> None:
    if _libc.ptrace(request, thread, address, value) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace {request:#x} of {thread}: {os.strerror(code)}")


class _Tracer:
    """Follows all threads of one process and counts their calls together."""

    def __init__(self, pid: int, numbers: tuple[int, ...], fatal: int) -> None:
        self._pid = pid
        self._numbers = numbers
        self._left = fatal
        self._seized: set[int] = set()
        self._unseen: set[int] = set()
        """Seized threads that have not stopped yet: their calls are not seen so far."""

    def run(self) -> None:
        """Return when the process has ended."""
        self._seize()
        is_ready = False
        with contextlib.suppress(ChildProcessError):
            while True:
                thread, status = os.waitpid(-1, _WALL)
                self._unseen.discard(thread)
                if os.WIFSTOPPED(status):
                    with contextlib.suppress(ProcessLookupError):  # Killed in the meantime.
                        self._stopped(thread, os.WSTOPSIG(status), status >> 16)
                if not is_ready and not self._unseen:
                    is_ready = True
                    _say("ready")

    def _seize(self) -> None:
        """Seize every thread; those that they start from now on are seized by the kernel."""
        while new := self._threads() - self._seized:
            for thread in new:
                self._seized.add(thread)
                try:
                    _ptrace(_SEIZE, thread, value=_O_TRACESYSGOOD | _O_TRACECLONE)
                except ProcessLookupError:
                    continue  # It ended.
                except PermissionError:
                    if thread == self._pid:
                        raise
                    continue  # The kernel was first.
                _ptrace(_INTERRUPT, thread)
                self._unseen.add(thread)

    def _threads(self) -> set[int]:
        return {int(path.name) for path in Path(f"/proc/{self._pid}/task").iterdir()}

    def _stopped(self, thread: int, number: int, event: int) -> None:
        """Look at a thread that stopped, and let it go on."""
        if number == _SYSCALL_STOP:
            self._count(thread)
        elif event == _EVENT_STOP and number in _GROUP_STOPS:
            _ptrace(_LISTEN, thread)
            return
        is_signal = number != _SYSCALL_STOP and event == 0
        _ptrace(_SYSCALL, thread, value=number if is_signal else 0)

    def _count(self, thread: int) -> None:
        found = _SyscallInfo()
        _ptrace(_GET_SYSCALL_INFO, thread, ctypes.sizeof(found), ctypes.addressof(found))
        if found.op != _INFO_ENTRY or found.number not in self._numbers:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(self._pid, signal.SIGKILL)
            _say("struck")


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _main() -> None:
    pid, family, number = sys.argv[1:]
    try:
        _Tracer(int(pid), FAMILIES[family], int(number)).run()
    except (ProcessLookupError, FileNotFoundError):
        _say("ended")
    except OSError as error:
        _say(f"cannot trace: {error}")


if __name__ == "__main__":
    _main()
