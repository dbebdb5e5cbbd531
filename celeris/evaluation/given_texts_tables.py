"""How the figures of given texts are laid out: a figure a row, real text beside."""

from collections.abc import Sequence
from typing import Any

from celeris.evaluation.record import Table
from celeris.evaluation.references import DEFINITIONS as AGAINST

# words in the table, figure, format
ROWS = (
    ("gen-PPL of all tokens", "gen_ppl", ".1f"),
    ("mean of the texts' own PPL", "gen_ppl_mean_of_texts", ".1f"),
    ("bits/character under the scorer", "scorer_bits_per_character", ".2f"),
    ("tokens scored", "tokens_scored", ",d"),
    ("tokens cut", "tokens_cut", ",d"),
    ("entropy, characters", "entropy", ".2f"),
    ("entropy, the scorer's tokens", "scorer_entropy", ".2f"),
    ("distinct-1", "distinct_1", ".2f"),
    ("distinct-2", "distinct_2", ".2f"),
    ("distinct-3", "distinct_3", ".2f"),
    ("self-BLEU", "self_bleu_4", ".1f"),
    ("rep-4", "rep_4", ".1%"),
    ("longest run of a character", "longest_run", "d"),
    ("longest run of a word", "longest_word_run", "d"),
    ("known words", "known_word_share", ".1%"),
    ("longest copied span, characters", "copied_longest", "d"),
    ("copied span, mean", "copied_mean", ".1f"),
    ("MAUVE", "mauve", ".3f"),
    ("MAUVE, texts a side", "mauve_samples", "d"),
    ("MAUVE, sd over clusterings", "mauve_sd", ".3f"),
    ("characters, mean", "mean_characters", ".1f"),
    ("characters, sd", "sd_characters", ".1f"),
    ("characters, least", "min_characters", "d"),
    ("characters, most", "max_characters", "d"),
)
AGAINST_ROWS = (
    ("exact match", "exact_match", ".1%"),
    ("BLEU", "bleu", ".1f"),
    ("chrF", "chrf", ".1f"),
    ("ROUGE-1", "rouge_1", ".3f"),
    ("ROUGE-2", "rouge_2", ".3f"),
    ("ROUGE-L", "rouge_l", ".3f"),
    ("empty texts", "empty", "d"),
)


def texts_tables(
    label: str,
    figures: dict[str, Any],
    real: dict[str, Any] | None,
    against: dict[str, Any] | None,
    skipped: str,
    scored_by: str | None,
) -> list[Table]:
    """One table of the figures, and one against references where there are any.

    Args:
        label: what the texts are called.
        figures, real: of the texts and of real text, by name.
        against: of `compare_with_references`.
        skipped: what was not measured, in a sentence.
        scored_by: definition of gen-PPL; None: there was no scorer.
    """
    columns, headings, notes = [figures], ["", label], [skipped]
    if scored_by:
        notes.append(f"gen-PPL: {scored_by}.")
    if real:
        columns.append(real)
        headings.append("real text")
        notes.append("Real text is cut to the texts' lengths.")
    tables = [Table(f"Texts: {label}", headings, _rows(ROWS, columns), notes)]
    if against:
        notes = [f"BLEU: {against['bleu_signature']}; chrF: {against['chrf_signature']}; {AGAINST['rouge_1']}."]
        title = f"Against references: {against['pairs']} texts that have one"
        tables.append(Table(title, ["", label], _rows(AGAINST_ROWS, [against]), notes))
    return tables


def _rows(rows: Sequence[tuple[str, str, str]], columns: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        [words, *("–" if column[name] is None else format(column[name], form) for column in columns)]
        for words, name, form in rows
        if any(column[name] is not None for column in columns)
    ]
