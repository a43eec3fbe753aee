"""Packages that the method can do without, imported by name where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpvi_lib.errors import GPVIError


def optional(module: str, extra: str = "paper") -> Any:
    """Import a module of a package that only the extra ``extra`` of this project brings.

    Raises:
        GPVIError: if the package is not installed, or is and cannot be imported.
    """
    package = module.split(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            raise GPVIError(f'{package} is not installed; get it with: pip install -e ".[{extra}]"') from None
        raise GPVIError(f"{package} is installed but cannot be imported: {error}") from error
