"""Errors a user can act on: one sentence that names the thing and the remedy.

Each is a plain exception with one message, so it survives pickling between worker processes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GPVIError(ValueError):
    """Base of the errors that name a remedy, which the command line prints without a traceback.

    Some arguments that make no sense raise a plain ``ValueError``, a few a ``TypeError``: ``except ValueError`` catches
    all but the latter.
    """


class UnknownName(GPVIError):
    """A name (method, profile, experiment, parameter, ...) that does not exist."""

    @classmethod
    def among(
        cls, kind: str, name: object, valid: Iterable[str], of: object = None, shown_by: str | None = None
    ) -> UnknownName:
        """The error for a `name` that is not one of `valid`, things `of` something; it suggests the closest of them.

        Where they are too many for one message, it says what shows them all in place of their list.

        Example:
            >>> str(UnknownName.among("optimizer", "addam", ["adam", "sgd"]))
            "unknown optimizer 'addam'; did you mean 'adam'? (valid: adam, sgd)"
        """
        names = sorted(valid)
        within = [valid_name for valid_name in names if name and str(name) in valid_name]
        close = within[:1] or difflib.get_close_matches(str(name), names, n=3 if shown_by else 1, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        where = "" if of is None else f" of {of}"
        rest = f"{shown_by} shows all {len(names)}" if shown_by else f"valid: {', '.join(names) or 'none'}"
        return cls(f"unknown {kind} {name!r}{where}{hint} ({rest})")


class DataMissing(GPVIError):
    """A data set is not on this machine."""


class DivergedError(GPVIError):
    """A run met a non-finite number; it never becomes a number in a table."""


class RecordError(GPVIError):
    """A record cannot be written or used."""


class RecordMissing(RecordError):
    """No record has been written for this experiment, method, seed and profile."""


class RecordStale(RecordError):
    """The record is intact, but of a configuration that the experiment no longer has."""


class RecordDamaged(RecordError):
    """The record's files are truncated or were changed after they were written."""


class RecordWarning(UserWarning):
    """A damaged record is left out of a list or table that has others."""


class CannotWrite(GPVIError):
    """A file cannot be written: no such folder, no right to, or no room."""


class OutOfTime(GPVIError):
    """A time budget is used up; what was done is kept, and the same command goes on from there."""


class SweepError(GPVIError):
    """Some cells of a sweep failed; the message names each, and all others are recorded."""


class NotebookError(GPVIError):
    """A notebook did not run to its end."""


class KinkWarning(UserWarning):
    """A loss differentiates the slopes of a ReLU network, which jump: its gradient is biased."""


class FoldWarning(UserWarning):
    """Training ended with a map whose density its objective took for too small.

    It folds, ``det J`` has both signs; or determinants are below the floor of an :class:`~gpvi_lib.OrientedELBO`.
    """


class SlopeWarning(UserWarning):
    """The gradient of a target is not the slope of its values: part of it is cut off, or its own score is wrong."""
