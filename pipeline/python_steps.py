"""Steps in Python: `python: module:function` beside the pipeline's file, a DataFrame in and a DataFrame out.

The module (or the package that it is in) is sent to the executors, so that functions that run there find it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Function = Callable[..., Any]  # the user's own, so its result is looked at


def function_of(named: str, *, step: str, beside: Path) -> Function:
    """Loaded anew: another pipeline of this process may have had a module of the same name."""
    module_name, _, name = named.partition(":")
    top = module_name.partition(".")[0]
    if not (beside / f"{top}.py").exists() and not (beside / top).is_dir():
        raise CommandFailed(f"The step {step!r}: there is no {top}.py beside the pipeline.", code=ExitCode.USAGE)
    for loaded in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
        del sys.modules[loaded]
    sys.path.insert(0, str(beside))
    try:
        importlib.invalidate_caches()
        found = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise CommandFailed(f"The step {step!r}: {where(error, beside)}.", code=ExitCode.USAGE) from None
    finally:
        sys.path.remove(str(beside))
    if not callable(found):
        raise CommandFailed(f"The step {step!r}: {module_name} has no function {name!r}.", code=ExitCode.USAGE)
    return found  # type: ignore[no-any-return]


def applied(function: Function, rows: DataFrame, *, step: str, beside: Path) -> DataFrame:
    from pyspark.sql import DataFrame

    try:
        made = function(rows)
    except Exception as error:
        raise CommandFailed(f"The step {step!r}: {where(error, beside)}.", code=ExitCode.USAGE) from None
    if not isinstance(made, DataFrame):
        told = f"its function returned {type(made).__name__}, not a DataFrame"
        raise CommandFailed(f"The step {step!r}: {told}.", code=ExitCode.USAGE)
    return made


def ship(spark: SparkSession, named: str, *, beside: Path) -> None:
    """The module, or the whole package, to the executors, in an archive that is named by what is in it: Spark sends a
    name once, and another pipeline of this session (or an edited file) may have a module of the same name."""
    from pyspark import SparkFiles

    top = named.partition(":")[0].partition(".")[0]
    files = _files_of(top, beside)
    context = spark.sparkContext
    archive = f"{_archives_of(top)}{_digest(files)}.zip"
    place = Path(SparkFiles.getRootDirectory()) / archive
    if not place.exists():
        context.addPyFile(str(_zipped(files, Path(tempfile.mkdtemp(prefix="tidemark-step-")) / archive)))
    # What functions that are made from now on find, and no other module of this name: they travel as names. As the
    # path is another, so are the Python workers, which keep what they have imported.
    shipped = context._python_includes or []
    context._python_includes = [*(each for each in shipped if not each.startswith(_archives_of(top))), archive]
    # Processes in which Spark plans on the driver (transformWithState has one) are not told of what was added.
    found = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    others = (each for each in found if each and not Path(each).name.startswith(_archives_of(top)))
    context.environment["PYTHONPATH"] = os.pathsep.join([*others, str(place)])


def _archives_of(top: str) -> str:
    return f"tidemark-step.{top}."


def _files_of(top: str, beside: Path) -> dict[str, bytes]:
    """By their names in the archive."""
    module = beside / f"{top}.py"
    found = [module] if module.exists() else [each for each in (beside / top).rglob("*") if each.is_file()]
    return {
        each.relative_to(beside).as_posix(): each.read_bytes() for each in found if each.parent.name != "__pycache__"
    }


def _digest(files: Mapping[str, bytes]) -> str:
    made = hashlib.sha256()
    for name, content in sorted(files.items()):
        made.update(f"{name}\0{len(content)}\0".encode() + content)
    return made.hexdigest()[:16]


def _zipped(files: Mapping[str, bytes], archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as made:
        for name, content in sorted(files.items()):
            made.writestr(name, content)
    return archive


def where(error: BaseException, beside: Path) -> str:
    """What went wrong, with the line of the user's own file that it came from."""
    own = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(beside)]
    said = str(error).strip().splitlines()
    why = f"{type(error).__name__}: {said[0] if said else 'no reason given'}".rstrip(".")
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: {why}"
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {why}" if own else why
