"""The matrix library under MLX on a Linux CPU, chosen before MLX is imported.

The `mlx-cpu` wheel bundles the reference BLAS, which is 25 times slower than OpenBLAS at dense
float32. A library opened with `RTLD_GLOBAL` before `mlx.core` takes the symbols' place. The runner
calls `load_blas` first of all; `exo doctor` runs `python -m exo.runners.blas` and reads the report.
This module never imports MLX.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

SETTING = "EXO_BLAS"
"""A library's path, or `bundled` to keep the one MLX brings."""

THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
_SONAME = "libopenblas.so.0"
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
_WHEEL_MODULE = "ngsolve_openblas"
REMEDY = (
    "install OpenBLAS (Debian: apt install libopenblas0-pthread; Fedora: dnf install openblas), "
    f"or set {SETTING} to the path of a libopenblas"
)


class BlasUnusable(Exception):
    """Raised when the library that the user named in `EXO_BLAS` cannot serve MLX."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{SETTING}={path}: {reason}; {REMEDY}")
        self.path = path
        self.reason = reason


class BlasReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which matrix library MLX will use on this machine; `remedy` is empty when it is a fast one."""

    name: str
    """`openblas`, `bundled` (slow), or `platform` where MLX brings a fast one itself."""

    path: str = ""
    configuration: str = ""
    threads: int = 0
    remedy: str = ""

    @property
    def fast(self) -> bool:
        """Say whether dense matrices multiply at the machine's speed."""
        return self.name != "bundled"


def load_blas(environment: Mapping[str, str] | None = None) -> BlasReport:
    """Load the best BLAS there is and report it; must come before `mlx.core` is imported.

    Raises `BlasUnusable` for a library named in `EXO_BLAS` that does not work, and `RuntimeError`
    when MLX is imported already, because its symbols are bound by then.
    """
    if sys.platform != "linux":
        return BlasReport(name="platform")
    if "mlx.core" in sys.modules:
        message = "load_blas came after mlx.core was imported: too late to change its BLAS"
        raise RuntimeError(message)
    chosen = (os.environ if environment is None else environment).get(SETTING, "")
    # Spinning threads collapse under contention: decode falls from 22 to 1-2 tokens/s.
    os.environ.setdefault(THREADS_VARIABLE, "1")
    if chosen == "bundled":
        return BlasReport(name="bundled", remedy=f"unset {SETTING}")
    if chosen:
        return _load_named(chosen)
    for candidate in find_candidates():
        report = _try_load(candidate)
        if isinstance(report, BlasReport):
            return report
    return BlasReport(name="bundled", remedy=REMEDY)


def load_blas_once() -> BlasReport | None:
    """As `load_blas`, for programs that import MLX in several places; None once MLX is there."""
    return None if "mlx.core" in sys.modules else load_blas()


def find_candidates() -> Iterator[str]:
    """Give libraries to try, best first: the loader's own search, system folders, a wheel."""
    yield _SONAME
    for folder in map(Path, _LIBRARY_FOLDERS):
        for pattern in (
            "*/openblas-pthread/libopenblas.so.0",
            "*/libopenblas.so.0",
            "libopenblas*.so.0",
        ):
            yield from map(str, sorted(folder.glob(pattern)))
    spec = importlib.util.find_spec(_WHEEL_MODULE)
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from map(str, sorted(Path(folder).glob("libopenblas*.so")))


def _load_named(path: str) -> BlasReport:
    report = _try_load(path)
    if isinstance(report, BlasReport):
        return report
    raise BlasUnusable(path, report)


def _try_load(path: str) -> BlasReport | str:
    """Open one library for all later ones to link against, or say why it does not serve."""
    try:
        # Looked at in private first: a library that does not fit must not leave symbols behind.
        library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        return str(error)
    if not hasattr(library, "cblas_sgemm") or not hasattr(library, "openblas_get_config"):
        return "it does not export cblas_sgemm and openblas_get_config"
    library.openblas_get_config.restype = ctypes.c_char_p
    configuration = str(library.openblas_get_config(), "ascii", "replace")
    if "USE64BITINT" in configuration:
        return "it is built for 64-bit integers, MLX passes 32-bit ones"
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return BlasReport(
        name="openblas",
        path=_find_loaded(path),
        configuration=configuration,
        threads=int(library.openblas_get_num_threads()),
    )


def _find_loaded(path: str) -> str:
    """Give the file behind a bare library name, as the kernel mapped it."""
    if "/" in path:
        return path
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        found = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    return min(found, default=path)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(load_blas()) + b"\n")
