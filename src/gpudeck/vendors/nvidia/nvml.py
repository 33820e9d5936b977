# SPDX-License-Identifier: Apache-2.0
"""Load NVML from the node's own driver, call it, and translate what it returns.

The library is the node's file, opened by its absolute path below the host root with
RTLD_GLOBAL; nvidia-ml-py, which asks for `libnvidia-ml.so.1`, is then given this one
by its SONAME (dlopen(3)). Links are resolved inside the host root first: Debian's
lead to /etc/alternatives. A query that the card or the driver lacks is
no error: `optional` answers None for it (case-08, case-13).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pynvml

from gpudeck import errors
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import paths

P = ParamSpec("P")
T = TypeVar("T")

# What means that the card, the driver or this mode has no such thing.
_LACKING = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NOT_READY,
        pynvml.NVML_ERROR_INVALID_STATE,
    }
)

_CONSTANTS = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
"""What NVML calls the errors for which the binding has no words."""
_REASONS = {
    pynvml.NVML_ERROR_NO_PERMISSION: "CardNotPermitted",
    pynvml.NVML_ERROR_NOT_FOUND: "CardNotInDriver",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "CardNotInDriver",
    pynvml.NVML_ERROR_GPU_IS_LOST: "GpuLost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "ResetRequired",
}

_INIT_REASONS = {
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "DriverNotPermitted",
        "the device nodes of the driver may not be opened",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "DriverNotLoaded",
        "the kernel module nvidia is not loaded, or /dev/nvidiactl is missing",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "DriverLibraryVersionMismatch",
        "the library and the loaded kernel module are of different versions; "
        "reload the module or reboot the node",
    ),
}


class QueryError(errors.UnavailableError):
    """NVML answered a query with an error; `code` is its nvmlReturn_t."""

    reason = "NVMLQueryFailed"

    def __init__(self, function: str, code: int) -> None:
        super().__init__(
            f"{function} answers {_name(code)}", reason=_REASONS.get(code, self.reason)
        )
        self.code = code

    @property
    def lacking(self) -> bool:
        """The card or the driver has no such query."""
        return self.code in _LACKING


class Nvml:
    """NVML as one thread calls it; `progress` is told each function before it is entered."""

    def __init__(self, root: host.Root, progress: contract.Progress) -> None:
        self._root = root
        self._progress = progress

    def open(self) -> contract.DriverState:
        """Load and initialise; the state says why that failed."""
        found = paths.find_library(self._root)
        if found is None:
            return _not_ready(
                "DriverLibraryNotFound",
                f"no {paths.LIBRARY} on the node in {', '.join(paths.LIBRARY_FOLDERS)}; "
                "perhaps the driver is not installed",
            )
        try:
            ctypes.CDLL(str(self._root.real(found)), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return _not_ready("DriverLibraryUnusable", f"{found}: {error}")
        try:
            self.call(pynvml.nvmlInit)
            version = self.call(pynvml.nvmlSystemGetDriverVersion)
        except QueryError as error:
            reason, meaning = _INIT_REASONS.get(error.code, ("DriverInitFailed", str(error)))
            return _not_ready(reason, meaning)
        cuda = self.optional(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return contract.DriverState(
            ready=True,
            reason="DriverReady",
            message=f"Driver {version} serves the cards.",
            version=version,
            api_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        )

    def enter(self, name: str) -> None:
        """Note what is about to be entered, where that is no function of nvidia-ml-py."""
        self._progress(name)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of nvidia-ml-py. Raises QueryError."""
        name = function.__name__
        self._progress(name)
        try:
            return function(*args, **kwargs)
        except pynvml.NVMLError as error:
            raise QueryError(name, int(error.value)) from error

    def optional(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Like `call`; None where the card or the driver lacks the query."""
        try:
            return self.call(function, *args, **kwargs)
        except QueryError as error:
            if error.lacking:
                return None
            raise


def _not_ready(reason: str, meaning: str) -> contract.DriverState:
    message = f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}."
    return contract.DriverState(ready=False, reason=reason, message=message)


def _name(code: int) -> str:
    # Not nvmlErrorString: the library may be what is broken.
    text = pynvml.NVMLError._errcode_to_string.get(code) or _CONSTANTS.get(code)
    return f"{text.rstrip('.')} ({code})" if text else f"error {code}"
