"""Which parameter is trained how, decided by the module it belongs to."""

from typing import NamedTuple

from torch import nn

from celeris.language_model import LanguageModel


class Roles(NamedTuple):
    """A partition of the trainable parameters.

    Attributes:
        matrices: weights of the linear layers inside the trunk.
        embedding: the table; its rows are normalised at use, so decay would only change the effective step.
        schedule: the noise schedule's fit; a handful of numbers with their own loss.
        decay: other parameters with two or more axes.
        no_decay: gains, biases and other vectors.
    """

    matrices: list[nn.Parameter]
    embedding: list[nn.Parameter]
    schedule: list[nn.Parameter]
    decay: list[nn.Parameter]
    no_decay: list[nn.Parameter]


def parameter_roles(model: LanguageModel) -> Roles:
    """Sort the trainable parameters of a model; each appears exactly once, in module order."""
    table, schedule = ({id(p) for p in found} for found in (model.table_parameters(), model.schedule_parameters()))
    linear = {id(m.weight) for m in model.trunk.modules() if isinstance(m, nn.Linear)}
    roles = Roles([], [], [], [], [])
    for p in model.parameters():  # yields a shared parameter once
        if not p.requires_grad:
            continue
        if id(p) in table:
            roles.embedding.append(p)
        elif id(p) in schedule:
            roles.schedule.append(p)
        elif id(p) in linear and p.ndim == 2:
            roles.matrices.append(p)
        else:
            (roles.decay if p.ndim >= 2 else roles.no_decay).append(p)
    return roles
