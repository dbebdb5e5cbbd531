"""A short depthwise convolution over neighbouring positions, exact across the context/canvas boundary."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LocalMixing(nn.Module):
    """x_t + Σ_j w_j ⊙ x_{t+j}, j = −left … right, zero-initialised (a no-op at the start).

    The context stream uses only j ≤ 0. A canvas block also looks `right` ahead inside itself, and its first positions
    reach back into the context in front of it, which is what makes n-grams cheap.
    """

    def __init__(self, width: int, left: int, right: int) -> None:
        super().__init__()
        self.left, self.right = left, right
        self.weight = nn.Parameter(torch.zeros(left + 1 + right, width))

    def context(self, x: Tensor, taps: Tensor, positions: Tensor | None) -> Tensor:
        """Causal mixing of x (B, T, H). `taps` (B, S, H) holds every position so far, x included; `positions` (B, T)
        are x's places in it, or None when x is all there is."""
        length = x.shape[1]
        past = F.pad(taps, (0, 0, self.left, 0))
        out = x + self.weight[self.left] * x
        for j in range(1, self.left + 1):
            if positions is None:
                shifted = past[:, self.left - j : self.left - j + length]
            else:
                shifted = past.gather(1, (positions + self.left - j)[..., None].expand_as(x))
            out = out + self.weight[self.left - j] * shifted
        return out

    def canvas(self, x: Tensor, taps: Tensor, start: Tensor) -> Tensor:
        """Two-sided mixing inside each block of x (B, N, C, H), whose left neighbours are context `taps` (B, S, H)
        in front of `start` (B, N)."""
        rows, blocks, length, width = x.shape
        back = start[..., None] + torch.arange(self.left, device=x.device)  # in taps padded by `left` zeros
        before = F.pad(taps, (0, 0, self.left, 0)).gather(1, back.flatten(1)[..., None].expand(-1, -1, width))
        row = torch.cat([before.view(rows, blocks, self.left, width), F.pad(x, (0, 0, 0, self.right))], 2)
        out = x
        for j, weight in enumerate(self.weight):
            out = out + weight * row[:, :, j : j + length]
        return out
