"""How a run is laid over devices."""

from dataclasses import dataclass

from celeris.errors import CelerisError


@dataclass(frozen=True)
class Plan:
    """One optimizer step, and how many of them.

    Attributes:
        ranks: devices, each with a micro-batch of its own (data parallelism).
        sharded: weights, gradients, optimizer and average are divided among the ranks (FSDP), not copied (DDP).
        micro_batch, global_batch: rows of a forward pass of a rank, and of an optimizer step.
        length: tokens of a row.
        steps: of the run.
        half: layers are collected in 16 bits under FSDP; gradients always travel in float32.
    """

    ranks: int
    sharded: bool
    micro_batch: int
    global_batch: int
    length: int
    steps: int
    half: bool = True

    def __post_init__(self) -> None:
        rows = self.micro_batch * self.ranks
        if min(self.ranks, self.micro_batch, self.global_batch) < 1 or self.global_batch % rows:
            raise CelerisError(
                f"global_batch_size={self.global_batch} is not a multiple of micro_batch_size={self.micro_batch} times "
                f"{self.ranks} rank(s) = {rows}; change one of them."
            )

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step and rank."""
        return self.global_batch // (self.micro_batch * self.ranks)

    @property
    def tokens(self) -> int:
        """Of the text, in a step."""
        return self.global_batch * self.length
