"""The token-by-token decoder ends, waits and streams as the diffusion decoder does."""

from typing import Any

import pytest

from celeris.errors import CelerisError
from celeris.model import DiffusionLM
from celeris.sampling import Piece, generate_autoregressive


def write(model: DiffusionLM, **options: Any) -> Any:
    return generate_autoregressive(model, ["ab", "dbca"], max_new_tokens=20, seed=5, **options)


def test_a_stop_string_ends_the_row_that_has_it(model: DiffusionLM) -> None:
    free = write(model)
    stop = free.texts[0][4:6]
    cut = [text.partition(stop) for text in free.texts]
    out = write(model, stop=stop)
    assert out.texts == [before for before, _, _ in cut] and len(out.texts[0]) <= 4
    assert out.stops == [stop if found else None for _, found, _ in cut]
    assert out.finish_reasons == ["stop" if found else "length" for _, found, _ in cut]
    assert out.context_passes[0] == len(out.texts[0]) + 2  # the two tokens of the stop string were asked for
    assert free.context_passes == [20, 20] and free.stops == [None, None]


def test_pieces_are_the_text_and_a_row_that_has_ended_is_silent(model: DiffusionLM) -> None:
    stop = write(model).texts[0][4:6]
    pieces: list[Piece] = []
    out = write(model, stop=[stop], callback_on_piece=pieces.append)
    for row, text in enumerate(out.texts):
        own = [piece for piece in pieces if piece.row == row]
        assert "".join(piece.text for piece in own) == text
        assert [piece.finish_reason for piece in own] == [None] * (len(own) - 1) + [out.finish_reasons[row]]
    assert out.texts == write(model, stop=[stop]).texts  # whether somebody reads along changes nothing


def test_no_end_before_min_new_tokens(model: DiffusionLM) -> None:
    model.rounding.prior.fill_(-5.0)
    model.rounding.prior[model.eos_id] = 1e6
    out = write(model, min_new_tokens=7)
    assert [len(row) for row in out.sequences] == [7, 7] and out.finish_reasons == ["stop", "stop"]
    assert out.context_passes == [8, 8]  # EOS was asked for
    with pytest.raises(CelerisError, match="min_new_tokens is 21"):
        write(model, min_new_tokens=21)
    with pytest.raises(CelerisError, match="stop string is empty"):
        write(model, stop="")
