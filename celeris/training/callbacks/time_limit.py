"""A limit on the time of one start of a run."""

from typing import Any

from lightning.pytorch.callbacks import Timer


class TimeLimit(Timer):
    """Ends training after the step in progress once this process has trained for `duration` ("DD:HH:MM:SS").

    Lightning's timer goes on from the checkpoint's time, so that a requeued run would stop at once; a cluster's limit
    is one for each job.
    """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Starts from zero."""
