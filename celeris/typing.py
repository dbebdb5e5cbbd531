"""Shape legend, and aliases for annotated tensors.

    B  rows (batch)         L  positions of a row        D  embedding width
    S  context positions    N  canvas blocks of a row    H  model width
    C  positions of a block                              V  vocabulary

Canvas tensors are (B, N, C, …) while training and (B, C, …) while sampling one block.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Ids = Int[Tensor, "..."]
Gamma = Float[Tensor, "..."]
Latent = Float[Tensor, "... D"]
Logits = Float[Tensor, "... V"]
Table = Float[Tensor, "V D"]
Mask = Bool[Tensor, "..."]

__all__ = ["Bool", "Float", "Gamma", "Ids", "Int", "Latent", "Logits", "Mask", "Table", "Tensor"]
