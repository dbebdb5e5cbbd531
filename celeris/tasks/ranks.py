"""Which ranks there are and who started them: Lightning itself, torchrun, SLURM's srun, or submitit."""

import os
import socket
from datetime import timedelta
from typing import Any

from celeris.errors import CelerisError

STORE_SECONDS = 120
"""Longest wait for the first rank's word; the ranks of one torchrun start within seconds of each other."""


def is_first_rank() -> bool:
    """Whether this process writes what only one may write; known before any process group exists."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"))


def in_cluster_job() -> bool:
    """Whether SLURM runs this command as a job. A shell inside an allocation is none: many commands run in it."""
    return "SLURM_JOB_ID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def in_submitit() -> bool:
    """Whether submitit runs this process as (a task of) a job."""
    return "SUBMITIT_EXECUTOR" in os.environ


def restarted() -> bool:
    """Whether SLURM (a requeue) or torchrun (--max-restarts) has started this very command before."""
    return any(int(os.environ.get(f"{who}_RESTART_COUNT") or 0) > 0 for who in ("SLURM", "TORCHELASTIC"))


def adopt_local_tasks() -> None:
    """Tell Lightning about the tasks that submitit's local executor has started, in the words of torch.distributed.

    On SLURM submitit starts them with srun, which Lightning knows; here nothing but submitit's own variables says
    that there are others. The port follows from the job's id, a process id of this machine, so two jobs differ.
    """
    names = os.environ
    if names.get("SUBMITIT_EXECUTOR") == "local":
        names["LOCAL_RANK"] = names["SUBMITIT_LOCAL_LOCALID"]
        names["MASTER_ADDR"] = "127.0.0.1"
        names["MASTER_PORT"] = str(10_000 + int(names["SUBMITIT_LOCAL_JOB_ID"]) % 20_000)


def agreed(value: str, what: str) -> str:
    """The first rank's `value`, on every rank that torchrun has started; a restart by torchrun gets the same again.

    Args:
        value: this rank's proposal.
        what: name it is agreed under.

    Raises:
        CelerisError: there are other ranks, and nothing to ask them through.
    """
    names = os.environ
    if int(names.get("WORLD_SIZE", "1")) == 1:
        return value
    if names.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise CelerisError("These ranks share no job id; give all of them the same run_id=.")
    from torch.distributed import TCPStore

    try:
        store = TCPStore(
            names["MASTER_ADDR"],
            int(names["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=STORE_SECONDS),
        )
        key = f"celeris/{what}"
        if is_first_rank():
            return store.compare_set(key, "", value).decode()
        return store.get(key).decode()
    except RuntimeError as error:  # torch's DistError: no answer in time
        raise CelerisError(
            f"Rank {names.get('RANK')} on {socket.gethostname()} got no {what} from rank 0 within {STORE_SECONDS} s "
            f"through {names['MASTER_ADDR']}:{names['MASTER_PORT']}; give all ranks the same run_id=."
        ) from error


def check_ranks(trainer: Any, many: bool) -> None:
    """Refuse what would hang or train on half of the machine.

    Args:
        trainer: about to start.
        many: whether this is one job of a multirun.

    Raises:
        CelerisError: another number of tasks was started than the trainer expects, or a multirun would start ranks
            that each run the whole multirun again.
    """
    if many and trainer.world_size > 1 and not in_submitit():
        raise CelerisError(
            "A multirun cannot start several ranks itself; let a launcher start them "
            "(hydra/launcher=submitit_local on this machine, hydra/launcher=slurm), or use one device."
        )
    expected = trainer.num_devices * trainer.num_nodes
    wanted = f"the trainer devices={trainer.num_devices} on {trainer.num_nodes} node(s)"
    fix = f"start {expected} task(s)%s, or set trainer.devices= and trainer.num_nodes=."
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if in_cluster_job() and not by_torchrun and (tasks := os.environ.get("SLURM_NTASKS")) is not None:
        if int(tasks) != expected:
            raise CelerisError(f"SLURM has ntasks={tasks}, {wanted}; {fix % ' with srun'}")
        if int(tasks) > 1 and os.environ.get("SLURM_STEP_ID", os.environ.get("SLURM_STEPID")) is None:
            raise CelerisError(f"SLURM has ntasks={tasks} and this is only one of them; put srun before the command.")
    elif not in_cluster_job() and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and not by_torchrun:
        raise CelerisError(
            f"srun started {os.environ['SLURM_STEP_NUM_TASKS']} tasks in an interactive allocation, where each would "
            "train alone; put SLURM_JOB_NAME=train before srun."
        )
    if (tasks := os.environ.get("SUBMITIT_LOCAL_NTASKS")) is not None and int(tasks) != expected:
        raise CelerisError(f"submitit has ntasks={tasks}, {wanted}; {fix % ' (hydra.launcher.tasks_per_node=)'}")
    environment = getattr(trainer.strategy, "cluster_environment", None)
    alone = environment is not None and not environment.creates_processes_externally
    if alone and trainer.num_nodes > 1 and "NODE_RANK" not in os.environ:
        raise CelerisError(
            f"trainer.num_nodes={trainer.num_nodes}, but nothing has started the other nodes' ranks; start the command "
            "with srun or torchrun (docs/clusters.md)."
        )
