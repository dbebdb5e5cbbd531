"""The section of a report about filled blanks, from its record."""

from collections.abc import Mapping, Sequence
from typing import Any

from celeris.evaluation.record import Sample, Section, Table
from celeris.evaluation.slug import slug

DEFINITIONS = {
    "given_kept": "outputs in which every given token is what was given, of all that were written",
    "share_lower": "share of the sentences to which the judge gives a lower loss (nats of the whole sentence) with the "
    "filling written for it than with one written for blanks of the same lengths in another sentence; chance is 50 %",
    "standard_error": "sqrt(p·(1 − p)/n)",
    "share_true_lower": "the same for the true filling: what is there to be reached",
    "true_is_lower": "share of the sentences whose true filling has a lower loss than the one written",
    "known_words": "share of the words (>= 2 letters) with a letter in a blank that occur in the training text",
    "lengths": "every blank may be as short as one token and is longer than what stood there by `surplus`; a model "
    "that never ends a blank errs by `surplus`",
}


def infilling_section(record: dict[str, Any], show: int) -> Section:
    """Tables, headline, samples and scalars of what was found."""
    entries, free = record["settings"], record["lengths"]
    tables = [_settings(record), *([_lengths(free)] if free else [])]
    shares = ", ".join(f"{_share(entry)} ({entry['label']})" for entry in entries)
    headline = [
        f"A filling fits its own sentence better than another's in {shares} of {record['masks']}; given tokens are "
        f"kept in {_kept([*entries, *free])} outputs."
    ]
    samples = [
        Sample(f"infilling, {entry['label']}", f"{blanks!r} → {filled}, truly {true}")
        for entry in entries
        for blanks, filled, true in list(
            zip(record["templates"], entry["fillings"], record["true_fillings"], strict=True)
        )[:show]
    ]
    scalars = {f"infilling/{slug(entry['key'])}": entry["share_lower"] for entry in entries}
    scalars |= {f"infilling/known_words/{slug(e['key'])}": e["known_words"] for e in entries if e["known_words"]}
    return Section("Infilling", record, tables, headline, samples=samples, scalars=scalars)


def _settings(record: Mapping[str, Any]) -> Table:
    true = record["true"]
    rows = [
        [
            entry["label"],
            _kept([entry]),
            _share(entry),
            f"{entry['nats_per_sentence']:.1f}",
            f"{entry['nats_per_sentence_with_another_filling']:.1f}",
            _percent(entry["known_words"]),
            _percent(entry["known_words_with_another_filling"]),
        ]
        for entry in record["settings"]
    ]
    share, (least, most) = record["settings"][-1]["share_true_lower"], record["blank_length"]
    notes = [f"{name}: {text}." for name, text in DEFINITIONS.items() if name != "lengths"]
    rows.append(["true text", "–", f"{share:.1%}", f"{true['nats_per_sentence']:.1f}", "–",
                 _percent(true["known_words"]), "–"])  # fmt: skip
    return Table(
        f"Infilling: {record['masks']} held-out sentences with {record['blanks']} blanks of {least} … {most} "
        f"tokens, {record['share_blank']:.0%} of their tokens",
        ["", "given tokens kept", "lower loss than another's filling", "nats a sentence", "… with another's filling",
         "known words in blanks", "… another's filling"],
        rows,
        [f"Judge: {record['judge']}.", *notes],
    )  # fmt: skip


def _lengths(free: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        f"Infilling with blanks {free[0]['surplus']} tokens too long: {free[0]['blanks']} blanks",
        ["", "given tokens kept", "length as in the text", "mean error, tokens", "mean absolute error", "never ended",
         "nats a character"],
        [
            [
                entry["label"],
                f"{entry['given_kept']}/{entry['masks']}",
                f"{entry['length_exact']:.1%}",
                f"{entry['length_mean_error']:+.1f}",
                f"{entry['length_mean_absolute_error']:.1f}",
                f"{entry['never_ended']:.1%}",
                f"{entry['nats_per_character']:.3f}",
            ]
            for entry in free
        ],
        [f"{DEFINITIONS['lengths']}."],
    )  # fmt: skip


def _kept(entries: Sequence[Mapping[str, Any]]) -> str:
    good = sum(entry["given_kept"] + entry.get("given_kept_in_other_sentences", 0) for entry in entries)
    written = sum(entry["masks"] * (1 + ("given_kept_in_other_sentences" in entry)) for entry in entries)
    return f"{good}/{written}"


def _share(entry: Mapping[str, Any]) -> str:
    return f"{entry['share_lower']:.1%} ± {entry['standard_error']:.1%}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
