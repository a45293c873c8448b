"""Small libraries in C that stand between a broker and the system's: compiled when a test needs one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def available() -> bool:
    return shutil.which("cc") is not None


def build(name: str, directory: Path) -> Path:
    """The library that `name`.c beside this file makes."""
    library = directory / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library
