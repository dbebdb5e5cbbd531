"""Rows with blanks: what is given, what is to be written, and a surplus that means the blank ends here."""

import pytest
import torch

from celeris.data.blanks import Blanks
from celeris.data.sources.sentences import Sentences, sentences
from celeris.errors import CelerisError
from celeris.streams import generator
from tests.data.corpora import Memory

PAD, EOS = 0, 1


def rows(count=400, length=40, longest=30):
    ids = torch.randint(2, 50, (count, length), generator=generator(0, "test"))
    real = torch.randint(1, longest + 1, (count, 1), generator=generator(1, "test"))
    place = torch.arange(length)
    ids = torch.where(place < real, ids, torch.where(place == real, EOS, PAD))
    return ids, torch.arange(count) + 1000, real[:, 0].tolist()


def laid_out(**options):
    ids, index, real = rows()
    return ids, real, Blanks(**options, eos_id=EOS)(ids, index, seed=7, pad_id=PAD)


@pytest.mark.parametrize("options", [{}, {"surplus": 0}, {"surplus": 40, "p_surplus": 1.0}, {"p_edge": 1.0}], ids=str)
def test_without_its_surplus_the_row_is_the_text(options) -> None:
    ids, real, batch = laid_out(**options)
    starts = ends = 0
    assert batch.canvas.shape == batch.given.shape and batch.canvas.shape[1] == 1 and batch.infill
    for k, n in enumerate(real):
        start = int(batch.start[k, 0])
        canvas, given = batch.canvas[k, 0], batch.given[k, 0]
        surplus = (canvas == EOS) & ~given
        text = canvas[(canvas != PAD) & ~surplus]
        assert torch.equal(torch.cat([ids[k, :start], text]), ids[k, :n]), "the text, its own EOS left out"
        used = int((canvas != PAD).sum())
        assert start + used <= ids.shape[1], "the window"
        assert not (given & (canvas == PAD)).any() and bool((~given[:used]).any()), "something is to be written"
        assert not given[0], "the canvas begins with a blank"
        assert torch.equal(batch.context[k, : n + 1], ids[k, : n + 1]), "both decoders are trained on the row"
        if options.get("p_edge") == 1.0 and n > 20:
            starts += start == 0
            ends += not given[used - 1]
        if options.get("surplus") == 0:
            assert not surplus.any()
        else:  # EOS only at the end of a blank
            after = torch.cat([canvas[1:], canvas.new_zeros(1)])
            kept = torch.cat([given[1:], given.new_zeros(1)])
            assert int((surplus & ~((after == EOS) & ~kept)).sum()) <= 3
    if options.get("p_edge") == 1.0:  # all but the few whose blank there is empty
        assert min(starts, ends) > 0.9 * sum(n > 20 for n in real)
    reach = batch.start + (batch.canvas != PAD).sum(-1)
    assert int(reach.max()) <= batch.context.shape[1] <= ids.shape[1]


def test_shares_are_as_stated() -> None:
    ids = torch.randint(2, 50, (2000, 161), generator=generator(0, "test"))
    ids[:, 100], ids[:, 101:] = EOS, PAD
    batch = Blanks(most=3, p_edge=0.2, surplus=8, p_surplus=0.5, eos_id=EOS)(
        ids, torch.arange(2000), seed=7, pad_id=PAD
    )
    eos = (batch.canvas[:, 0] == EOS).sum(1).double()
    assert abs(float(eos.mean()) - 2 * 0.5 * 4.5) < 0.3  # two blanks on average, half of them with 1 … 8 too many
    written = ((batch.canvas != PAD) & ~batch.given)[:, 0].sum(1) - eos
    spans, gaps = (1 / 3 + 2 / 5 + 3 / 7) / 3, (1 / 3 + 1 / 5 + 1 / 7) / 3
    assert abs(float(written.mean()) - 100 * (spans + 2 * 0.2 * gaps)) < 2
    assert 0.2 < float((batch.start == 0).double().mean()) < 0.27


def test_a_row_is_laid_out_the_same_in_any_company() -> None:
    ids, index, _ = rows()
    layout = Blanks(eos_id=EOS)
    whole = layout(ids, index, seed=7, pad_id=PAD)
    order = torch.tensor([5, 333, 17])
    some = layout(ids[order], index[order], seed=7, pad_id=PAD)
    width = some.canvas.shape[2]
    assert torch.equal(whole.start[order], some.start)
    assert torch.equal(whole.canvas[order][..., :width], some.canvas)
    assert torch.equal(whole.given[order][..., :width], some.given)


def test_rows_without_room_or_text() -> None:
    full = torch.full((50, 6), 7)  # no EOS, and no room for a surplus
    batch = Blanks(p_surplus=1.0, eos_id=EOS)(full, torch.arange(50), seed=0, pad_id=PAD)
    assert not (batch.canvas == EOS).any() and bool((~batch.given & (batch.canvas == 7)).any(-1).all())
    empty = torch.tensor([[EOS, PAD, PAD]])
    batch = Blanks(p_surplus=0.0, eos_id=EOS)(empty, torch.arange(1), seed=0, pad_id=PAD)
    assert batch.canvas.tolist() == [[[EOS]]] and not batch.given.any()


def test_it_needs_an_eos_and_sensible_numbers() -> None:
    with pytest.raises(CelerisError, match="bind"):
        Blanks()(torch.ones(1, 4, dtype=torch.long), torch.arange(1), seed=0, pad_id=PAD)
    with pytest.raises(CelerisError, match="most=0"):
        Blanks(most=0)


TEXT = 'One is short. Two too! Is three a question? Yes.\n\nA heading\n\nMr. Smith said "No." He left; ' + "word " * 12


def test_sentences_are_whole_where_they_fit() -> None:
    found = list(sentences([TEXT], 24))
    assert found[:4] == ["One is short. Two too!", "Is three a question?", "Yes.", "A heading"]
    assert max(map(len, found)) <= 24 and "".join(found).replace(" ", "") == "".join(TEXT.split())
    assert all(piece == " ".join(piece.split()) for piece in found)
    assert list(sentences(["x" * 10], 4)) == ["xxxx", "xxxx", "xx"]
    assert list(sentences(["Yes. No.", "", " \n\n "], 4)) == ["Yes.", "No."]
    assert list(sentences([TEXT], 24, shortest=5))[2] == "A heading"


def test_the_source_of_sentences() -> None:
    source = Sentences(Memory(["One. Two."], ["Four."]), longest=5, shortest=3)
    assert list(source.documents("train")) == ["One.", "Two."] and list(source.documents("val")) == ["Four."]
    assert source.fingerprint() != Sentences(Memory(["One. Two."], ["Four."]), longest=6, shortest=3).fingerprint()
    with pytest.raises(CelerisError, match="shortest=9"):
        Sentences(Memory([], []), longest=5, shortest=9)
