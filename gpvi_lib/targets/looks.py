"""What to say where a density of the user's own fails, and how to see that it is not what it should be."""

from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

LIBRARIES = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))
"""Code in these folders is not the user's."""

FARTHER = (10.0, 100.0, 1_000.0)
"""Times as far from their mean as they are, points are looked at by :func:`grows_outwards`."""


def add_hint(error: Exception, x: Float[Tensor, "n d"]) -> None:
    """Add to an error that came out of the user's density a note with what usually helps; to any other nothing.

    Example:
        >>> error = RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        >>> add_hint(error, torch.zeros(3, 2))
        >>> error.__notes__
        ['gpvi_lib: log_prob must not change a tensor in place: write y = y + 1, not y += 1']
    """
    remedy = _remedy(error, x)
    if remedy and not getattr(error, "__notes__", None):
        error.add_note(f"gpvi_lib: {remedy}")


def _remedy(error: Exception, x: Tensor) -> str | None:
    said = str(error)
    if "in-place" in said or "inplace" in said:
        return "log_prob must not change a tensor in place: write y = y + 1, not y += 1"
    if not _from_the_user(error):
        return None
    if isinstance(error, torch.linalg.LinAlgError):
        return "a matrix of log_prob is singular at some points: add more to its diagonal, or compute in float64"
    if "to satisfy the constraint" in said:
        return (
            "a parameter of a distribution is outside its support at some points: put parameters such as scales into "
            "Constrained, and add more to the diagonal of a covariance"
        )
    if isinstance(error, TypeError) or "numpy()" in said:
        return (
            "log_prob must compute with torch alone: make tensors of data before, such as "
            "torch.as_tensor(np.asarray(column), dtype=torch.float32)"
        )
    if "dtype" in said or "scalar type" in said:
        return f"the points are {x.dtype}: convert the data to it, or give points and samplers the dtype of the data"
    return (
        f"log_prob gets all points at once, x (n, d) = {tuple(x.shape)}, and returns one number for each; a number per "
        "point, such as x[:, 0], needs [:, None] before it meets a vector of data, and .sum(-1) after"
    )


def _files(error: Exception) -> list[str]:
    """Of the code that was running, from the first call on."""
    trace, files = error.__traceback__, []
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return files


def in_users_code(error: Exception) -> bool:
    """Whether code of the user's was running, and not only called."""
    return any(not file.startswith(LIBRARIES) for file in _files(error))


def _from_the_user(error: Exception) -> bool:
    """The same, and none of a Posterior, which has looked at its parts itself."""
    return in_users_code(error) and not any(file.endswith("posterior.py") for file in _files(error))


def grows_outwards(
    score: Callable[[Tensor], Tensor], x: Float[Tensor, "n d"], s: Float[Tensor, "n d"] | None = None
) -> bool:
    r"""Whether a density rises away from its own samples, as the negative of a log-density does.

    Stein's identity is ``E_p[∇log p·(x - x̄)] = -d``. Here it has to be above ``+d`` at the samples, and positive at
    points 10, 100 and 1,000 times as far from their mean: a sampler that sits between two modes sees the first alone.
    ``s`` is the score at the samples, where it is known.

    Example:
        >>> x = 2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> grows_outwards(lambda x: x, x), grows_outwards(lambda x: -x, x)  # of |x|²/2, and of -|x|²/2
        (True, False)
    """
    centre = x.mean(0)
    away = x - centre

    def slope(times: float) -> float:
        return float((score(centre + times * away) * times * away).sum(-1).mean())

    try:
        here = slope(1.0) if s is None else float((s * away).sum(-1).mean())
        return here > x.shape[1] and all(slope(times) > 0 for times in FARTHER)
    except (RuntimeError, ValueError):  # the density does not reach so far
        return False


def wrong_sign(name: str) -> str:
    """The words for a density that grows outwards."""
    return (
        f"{name} grows without end away from the samples, as a loss or a potential energy does and the logarithm of a "
        "density cannot: give its negative"
    )
