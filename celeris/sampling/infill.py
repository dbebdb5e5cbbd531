"""Filling blanks in: given tokens are held, everything else comes out of noise between them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from celeris.errors import CelerisError
from celeris.language_model import LanguageModel
from celeris.model import DiffusionLM
from celeris.sampling.adaptive import Unchanged
from celeris.sampling.canvas import CanvasWriter, Restricted
from celeris.sampling.grids import Grid
from celeris.sampling.guidance import Guidance, standard_guidance
from celeris.sampling.output import GenerateOutput, StepEnd
from celeris.sampling.request import padded, tokenizer_of
from celeris.sampling.solvers import Solver
from celeris.sampling.template import Blank, BlankLength, Layout, Template, layouts, parse_template
from celeris.streams import generator


@dataclass
class InfillOutput(GenerateOutput):
    """What `infill` returns: `texts` and `sequences` are whole, what was given included.

    Attributes:
        prompts: the template of each row, blanks shown as `blank`.
        fillings: text of each blank.
        filled: token ids of each blank, in the order of the blanks.
        scores: mean next-token log-probability of what follows the context, nats per token; None where no length was
            to be chosen.
    """

    fillings: list[list[str]] = field(default_factory=list)
    filled: list[list[list[int]]] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that were written: none of those given."""
        return sum(len(ids) for row in self.filled for ids in row)

    @property
    def whole_texts(self) -> list[str]:
        return self.texts

    def row_tokens_per_forward(self, row: int) -> float:
        return sum(map(len, self.filled[row])) / max(self.nfe[row] + self.context_passes[row], 1)


@dataclass
class _Candidate:
    """One way to fill one row in; EOS cannot end a blank before its `least` tokens."""

    row: int
    layout: Layout
    least: list[int]
    canvas: list[int] = field(default_factory=list)
    calls: int = 0
    score: float | None = None


@torch.no_grad()
def infill(
    model: DiffusionLM,
    templates: Sequence[str | Template],
    *,
    blank: str = "____",
    blank_length: BlankLength = 8,
    num_samples: int = 1,
    num_inference_steps: int | None = None,
    temperature: float = 1.0,
    stagger: float | None = None,
    solver: Solver | None = None,
    grid: Grid | None = None,
    guidance_scale: float = 1.0,
    self_cond_guidance: float = 1.0,
    top_p: float = 1.0,
    clamp_below: float | None = None,
    guidance: Sequence[Guidance] = (),
    adaptive: Unchanged | None = None,
    seed: int = 0,
    callback_on_step_end: Callable[[StepEnd], None] | None = None,
) -> InfillOutput:
    """Fill the blanks of `templates` in; arguments that `generate` has too mean the same.

    What stands before the first blank is context, read once. From there to the end of the template is one canvas, in
    which the given tokens are noise-free and come back as they are. A canvas that is longer than the model's blocks is
    longer than what it was trained on. A model learns to use what stands behind a blank by training with given spans
    (`layout=blanks`, or `layout.p_given`).

    Blanks with length ranges: a model that was trained with blanks that are too long (`layout=blanks`) is given the
    longest ones; EOS ends a blank, not before its shortest length, and what stands behind it in the blank is dropped.
    With any other model a row is written once in every combination of lengths, and the combination is kept that its
    next-token head finds most likely, in nats per token of the canvas.

    EOS may end the text inside a blank that nothing follows; elsewhere it is not allowed in a blank of one length.

    Args:
        templates: texts with `blank` in them, or lists of pieces (texts, token ids) and `Blank`s.
        blank, blank_length: of templates that are texts (`parse_template`).
        num_inference_steps: solver steps; as many as the canvas has tokens when None.

    Raises:
        CelerisError: a template without a blank or longer than the window, lengths to choose and no next-token head,
            or a value out of range.
    """
    began = time.perf_counter()
    tokenizer = tokenizer_of(model)
    if isinstance(templates, str):
        raise CelerisError("templates is one text; put it into a list: [template].")
    for name, value in (("num_samples", num_samples), ("templates", len(templates))):
        if value < 1:
            raise CelerisError(f"{name} is {value}; it must be at least 1.")
    parsed = [parse_template(item, blank_length, blank) if isinstance(item, str) else item for item in templates]
    tries = [ways(model, template) for template in parsed for _ in range(num_samples)]
    if any(len(choices) > 1 for choices in tries) and not model.has_next_token_head:
        raise CelerisError(
            "Length ranges are judged by the next-token head, which this checkpoint has not; give one length."
        )
    wrappers = [*standard_guidance(guidance_scale, self_cond_guidance, top_p, clamp_below), *guidance]
    by_length: dict[int, list[_Candidate]] = defaultdict(list)
    for row, choices in enumerate(tries):
        for layout in choices:
            least = _least(parsed[row // num_samples], layout, chooses_lengths(model.info))
            by_length[len(layout.canvas)].append(_Candidate(row, layout, least))
    # A canvas of each length is a batch of its own: levels and noise of a row then do not depend on its neighbours.
    for number, (length, group) in enumerate(sorted(by_length.items())):
        writer = CanvasWriter(
            model, length, num_inference_steps, temperature, stagger, solver, grid, wrappers, adaptive,
            callback_on_step_end,
        )  # fmt: skip
        _write(model, writer, number, group, seed)
    tried: list[list[_Candidate]] = [[] for _ in tries]
    for candidate in (candidate for group in by_length.values() for candidate in group):
        tried[candidate.row].append(candidate)
    best = [_best(model, candidates) for candidates in tried]
    rows = [_cut(candidate, model.eos_id) for candidate in best]
    return InfillOutput(
        prompts=[_shown(template, tokenizer.decode, blank) for template in parsed for _ in range(num_samples)],
        texts=[tokenizer.decode(whole) for whole, _, _ in rows],
        sequences=[whole for whole, _, _ in rows],
        finish_reasons=["stop" if stopped else "length" for _, _, stopped in rows],
        nfe=[sum(c.calls for c in candidates) for candidates in tried],
        context_passes=[
            sum(bool(c.layout.context) + (len(candidates) > 1) for c in candidates) for candidates in tried
        ],
        seconds=time.perf_counter() - began,
        prefill_seconds=0.0,
        stops=[None] * len(rows),
        fillings=[[tokenizer.decode(ids) for ids in filled] for _, filled, _ in rows],
        filled=[filled for _, filled, _ in rows],
        scores=[candidate.score for candidate in best],
    )  # fmt: skip


def fill_in_the_middle(prefix: str, suffix: str, length: int | tuple[int, int]) -> list[str | Blank]:
    """The template of code completion: one blank between what stands before the cursor and what stands behind."""
    blank = Blank(length) if isinstance(length, int) else Blank(*length)
    return [piece for piece in (prefix, blank, suffix) if piece != ""]


def chooses_lengths(info: Mapping[str, Any]) -> bool:
    """Whether a model with this `info` was trained with blanks that are too long, so that it ends them itself."""
    layout = (info.get("data_spec") or {}).get("layout") or {}
    return bool(layout.get("surplus", 0))


def ways(model: LanguageModel, template: Template) -> list[Layout]:
    """The canvases of which a row's text is chosen: one, or one for each combination of lengths.

    Raises:
        CelerisError: no blank, too many combinations, or the longest does not fit the window.
    """
    if chooses_lengths(model.info) and not isinstance(template, str):
        template = [Blank(item.most) if isinstance(item, Blank) else item for item in template]
    return list(layouts(model, template))


def _least(template: Template, layout: Layout, own_choice: bool) -> list[int]:
    """Tokens of each blank that must be written. Where nothing follows, EOS may end the text at once."""
    blanks = [item for item in template if isinstance(item, Blank)]
    sizes = [end - begin for begin, end in layout.spans]
    found = [blank.shortest for blank in blanks] if own_choice else list(sizes)
    if layout.open_end and found[-1] == sizes[-1]:
        found[-1] = 0
    return found


def _write(model: DiffusionLM, writer: CanvasWriter, number: int, group: list[_Candidate], seed: int) -> None:
    """Fill in `group`, whose canvases are equally long."""
    device, pad = model.device, model.pad_id
    context = model.encode_context(*padded([c.layout.context for c in group], pad, device))
    ids = torch.tensor([c.layout.canvas for c in group], device=device)
    given = torch.ones(ids.shape, dtype=torch.bool)
    no_eos = torch.ones(ids.shape, dtype=torch.bool)
    for place, candidate in enumerate(group):
        for (begin, end), least in zip(candidate.layout.spans, candidate.least, strict=True):
            given[place, begin:end] = False
            no_eos[place, begin + least : end] = False
    # A given EOS is as good as any other token; where none is given nothing is held.
    held, allowed = given.to(device), (no_eos & ~given).to(device)
    restricted = Restricted(model, allowed, ids, held) if given.any() else Restricted(model, allowed)
    generators = [generator(seed + c.row, "sampling", device=device) for c in group]
    rows = [c.row for c in group]
    written = writer.write(number, rows, context, generators, [c.layout.context for c in group], restricted)
    for candidate, tokens, calls in zip(group, written.ids.tolist(), written.calls, strict=True):
        candidate.canvas, candidate.calls = tokens, calls


def _best(model: DiffusionLM, choices: list[_Candidate]) -> _Candidate:
    if len(choices) == 1:
        return choices[0]
    scores = _scores(model, choices)
    place = max(range(len(choices)), key=scores.__getitem__)
    choices[place].score = scores[place]
    return choices[place]


def _scores(model: DiffusionLM, choices: list[_Candidate]) -> list[float]:
    """Mean log p(token | everything before it) over each canvas; EOS stands before a text that begins with a blank."""
    before = [c.layout.context or [model.eos_id] for c in choices]
    ids, lengths = padded([own + c.canvas for own, c in zip(before, choices, strict=True)], model.pad_id, model.device)
    log_p = torch.log_softmax(model.next_token_logits(model.encode_context(ids, lengths)), -1)
    own = log_p[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    spans = [(len(start) - 1, len(c.canvas)) for start, c in zip(before, choices, strict=True)]
    return [float(own[row, first : first + size].mean()) for row, (first, size) in enumerate(spans)]


def _cut(candidate: _Candidate, eos_id: int) -> tuple[list[int], list[list[int]], bool]:
    """Whole ids, those of each blank, and whether EOS ended the last one."""
    canvas, layout = candidate.canvas, candidate.layout
    whole, filled, done = list(layout.context), [], 0
    stopped = layout.open_end and eos_id in canvas[slice(*layout.spans[-1])]
    for begin, end in layout.spans:
        ids = canvas[begin:end]
        ids = ids[: ids.index(eos_id)] if eos_id in ids else ids
        whole += canvas[done:begin] + ids
        filled.append(ids)
        done = end
    return whole + canvas[done:], filled, stopped


def _shown(template: Template, decode: Callable[[list[int]], str], blank: str) -> str:
    return "".join(
        blank if isinstance(item, Blank) else item if isinstance(item, str) else decode(list(item)) for item in template
    )
