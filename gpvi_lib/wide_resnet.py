"""Wide residual networks (Zagoruyko and Komodakis 2016) with group norm, for posteriors over their weights.

Batch norm ties the data of a minibatch to each other, so that the weights have no likelihood; group norm does not.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class _Block(nn.Module):
    """Two 3 x 3 convolutions, each after norm and ReLU, added to the input, or to a 1 x 1 convolution of it."""

    def __init__(self, source: int, channels: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(groups, source)
        self.first = nn.Conv2d(source, channels, 3, stride, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        same = source == channels and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(source, channels, 1, stride, bias=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        a = torch.relu(self.first_norm(x))
        shortcut = x if isinstance(self.shortcut, nn.Identity) else self.shortcut(a)
        return shortcut + self.second(torch.relu(self.second_norm(self.first(a))))


def wide_resnet(depth: int = 16, width: int = 4, num_classes: int = 10, groups: int = 8) -> nn.Sequential:
    """WRN-depth-width for ``(b, 3, 32, 32)``, with group norm in place of batch norm.

    Args:
        depth: ``6 n + 4``: three stages of n blocks.
        width: of the stages, in units of 16, 32 and 64 channels.
        num_classes: outputs.
        groups: of the norms, a divisor of 16 and of the widths.

    Raises:
        ValueError: if the depth is not ``6 n + 4``, or the groups do not divide 16 and the widths.

    Example:
        >>> wide_resnet(depth=10, width=1)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"the depth of a wide residual network is 10, 16, 22, ..., 6 n + 4, got {depth}")
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    source = 16
    for stage, channels in enumerate((16 * width, 32 * width, 64 * width)):
        for i in range((depth - 4) // 6):
            layers.append(_Block(source, channels, 2 if stage and i == 0 else 1, groups))
            source = channels
    layers += [nn.GroupNorm(groups, source), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(source, num_classes))
