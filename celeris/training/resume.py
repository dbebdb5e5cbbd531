"""Where a resumed run begins: Lightning's loop counters, rebuilt from the one number that matters."""

from typing import Any

import lightning as L


def restarted_loops(trainer: L.Trainer, step: int) -> dict[str, Any]:
    """Loop state of a run that has taken `step` optimizer steps and stands at the beginning of the next one.

    Lightning saves counters of the moment a checkpoint was written: inside an epoch, a validation, or an
    accumulation. The data module serves the rest of the run as one epoch that starts at sample step·global batch, so
    all of them are wrong for it, except the number of steps.
    """
    loops = {
        "fit_loop": trainer.fit_loop.state_dict(),
        "validate_loop": trainer.validate_loop.state_dict(),
        "test_loop": trainer.test_loop.state_dict(),
        "predict_loop": trainer.predict_loop.state_dict(),
    }
    fit = loops["fit_loop"]
    batches = step * trainer.accumulate_grad_batches
    fit["epoch_loop.batch_progress"]["total"] = dict.fromkeys(fit["epoch_loop.batch_progress"]["total"], batches)
    updates = fit["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
    updates["total"] = dict.fromkeys(updates["total"], step)
    fit["epoch_loop.state_dict"]["_batches_that_stepped"] = step
    return loops
