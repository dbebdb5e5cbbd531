"""What a device and the wires between devices can do, by data sheet or measured."""

from dataclasses import dataclass

from celeris.errors import CelerisError


@dataclass(frozen=True)
class Hardware:
    """A cluster of equal nodes.

    Attributes:
        name: for people.
        half_flops, single_flops: peak FLOP/s of dense products in bf16 and in float32, of one device.
        memory: bytes of one device.
        memory_bandwidth: bytes/s between one device and its memory.
        devices_per_node: devices that `inside_node` joins.
        inside_node: bytes/s of one device to its neighbours, in one direction.
        between_nodes: bytes/s of one node to the next, in one direction, over all its adapters.
        reached: share of the peaks that large products reach. 0.7 is an assumption: about what large square products
            reach on the two GPUs described here, and not measured by this project.
        moved: share of `memory_bandwidth` and of the wires that is reached; assumed, too.
        usable: share of `memory` that tensors can have (the rest: context, fragments, communication buffers).
        hides: share of a computation behind which communication can hide: 1 on a GPU, whose wires work by themselves
            (nearly: the sums take a few of its processors); 0 where the same core computes and sends.
        launch: seconds that an operation takes at least.
        latency: seconds of one message; assumed, as is `launch`.
    """

    name: str
    half_flops: float
    single_flops: float
    memory: float
    memory_bandwidth: float
    devices_per_node: int
    inside_node: float
    between_nodes: float
    reached: float = 0.7
    moved: float = 0.8
    usable: float = 0.9
    hides: float = 1.0
    launch: float = 5e-6
    latency: float = 5e-6

    def __post_init__(self) -> None:
        for name in ("half_flops", "single_flops", "memory", "memory_bandwidth", "devices_per_node", "inside_node",
                     "between_nodes"):  # fmt: skip
            if not getattr(self, name) > 0:
                raise CelerisError(f"hardware.{name} is {getattr(self, name)}; it must be positive.")
        for name in ("reached", "moved", "usable"):
            if not 0 < getattr(self, name) <= 1:
                raise CelerisError(f"hardware.{name} is {getattr(self, name)}; it is a share, in (0, 1].")

    def wire(self, ranks: int) -> float:
        """Bytes/s of a ring over `ranks` devices: its slowest link.

        Inside a node a device's own link; between nodes a node's adapters together, because NCCL lays one ring over
        each of them and every ring carries its part of the data.
        """
        slowest = self.inside_node if ranks <= self.devices_per_node else min(self.inside_node, self.between_nodes)
        return slowest * self.moved
