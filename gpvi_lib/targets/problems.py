"""Many problems of one kind: what a sampler is trained on that is to work on unseen ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gpvi_lib.targets.base import Target, log_prob


class ProblemFamily:
    """Targets on the same R^d, such as posteriors of one model given different data.

    As a target it is their geometric mean; :class:`OverProblems` draws one of them for every step of training.

    Args:
        problems: at least one target. Minibatches by :func:`fit` need the same number of data in each.

    Raises:
        ValueError: if there are no problems, or their dimensions differ.

    Example:
        >>> family = ProblemFamily([Gaussian(mean, torch.eye(2)) for mean in torch.eye(2)])
        >>> family.dim, len(family.problems)
        (2, 2)
    """

    def __init__(self, problems: Sequence[Target]) -> None:
        if not problems:
            raise ValueError("a family needs at least one problem")
        dims = sorted({problem.dim for problem in problems})
        if len(dims) > 1:
            raise ValueError(
                f"all problems of a family must live on the same R^d, got dimensions {', '.join(map(str, dims))}"
            )
        numbers = {getattr(problem, "num_data", None) for problem in problems}
        self.problems, self.dim = tuple(problems), dims[0]
        self.num_data = numbers.pop() if len(numbers) == 1 else None

    def log_prob(self, x: Float[Tensor, "n d"], batch: Tensor | None = None) -> Float[Tensor, " n"]:
        """The mean of the problems' log-densities."""
        return torch.stack([log_prob(problem, x, batch) for problem in self.problems]).mean(0)
