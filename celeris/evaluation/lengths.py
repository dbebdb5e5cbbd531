"""Do texts end where texts end? Lengths of what a model writes beside those of held-out documents."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from celeris.data.sources.base import PairSource
from celeris.errors import CelerisError
from celeris.evaluation.decoders import Choices, decoders
from celeris.evaluation.plots import BESIDE
from celeris.evaluation.record import Sample, Section, Subject, Table
from celeris.evaluation.samples import write
from celeris.evaluation.slug import slug
from celeris.sampling import DDIM, Solver

HELD_OUT, TRAINING = "held-out documents", "training documents"
DEFINITIONS = {
    "ks": "two-sample Kolmogorov-Smirnov statistic, the largest difference between the two cumulative distributions of "
    "lengths (tokens before EOS), the held-out documents being the other sample",
    "p_value": "of that statistic under equal distributions, asymptotic with Stephens' correction for sample sizes; "
    "ties, which whole numbers have, make it too large rather than too small",
    "never_ended": "share of the texts without EOS within the limit; they are counted as exactly so long, and so are "
    "longer documents",
    TRAINING: "as many documents as a decoder writes, evenly spaced over the training text: what real text reaches",
}
Counts = npt.NDArray[np.int64]


class Lengths:
    """Lengths of unconditional samples of every decoder against those of documents.

    Args:
        num_samples: texts a decoder.
        max_new_tokens: where a text without an end is cut; None: the model's window.
        num_inference_steps, masked_steps, temperatures, autoregressive_temperatures, solvers: of the decoders, as in
            `celeris.evaluation.decoders.Choices`.
        max_documents: held-out documents used, evenly spaced; None: all.
        batch_size: rows generated at once.
        bins: of the histograms.
        show: texts of each decoder that the report prints.
    """

    def __init__(
        self,
        num_samples: int = 256,
        max_new_tokens: int | None = None,
        num_inference_steps: Sequence[int] = (2, 4, 8, 16),
        masked_steps: Sequence[int] = (32, 64, 128, 256),
        temperatures: Sequence[float] = (0.7, 1.0),
        autoregressive_temperatures: Sequence[float] = (1.0,),
        solvers: Mapping[str, Solver] | None = None,
        max_documents: int | None = 10_000,
        batch_size: int = 64,
        bins: int = 20,
        show: int = 1,
    ):
        counts = {"num_samples": num_samples, "batch_size": batch_size, "bins": bins, "max_documents": max_documents}
        for name, value in counts.items():
            if value is not None and value < 1:
                raise CelerisError(f"Lengths needs {name} of at least 1, not {value}.")
        self.num_samples, self.max_new_tokens, self.max_documents = num_samples, max_new_tokens, max_documents
        self.choices = Choices(
            num_inference_steps=num_inference_steps,
            masked_steps=masked_steps,
            temperatures=temperatures,
            autoregressive_temperatures=autoregressive_temperatures,
            solvers={"eta_1": DDIM(eta=1.0)} if solvers is None else solvers,
        )
        self.batch_size, self.bins, self.show = batch_size, bins, show

    def __call__(self, subject: Subject) -> Section:
        if subject.tokenizer.roles and isinstance(getattr(subject.data, "source", None), PairSource):
            return _left_out("Lengths are left out: the model answers prompts, and no text of it stands alone.")
        limit = self.max_new_tokens or subject.model.max_length
        real = self._documents(subject, subject.data.val_texts(), limit, self.max_documents)
        if len(real) == 0:
            return _left_out("Lengths are left out: there is no held-out document.")
        edges = np.linspace(0, limit, self.bins + 1)
        base = {"limit": limit, "documents": len(real)}
        training = self._documents(subject, subject.data.train_texts(), limit, self.num_samples)
        entries = [{"key": "real", "label": TRAINING, **compared(training, real, limit, edges), "texts": []}]
        for decoder in decoders(subject.model, self.choices):
            if subject.progress:
                print(f"lengths: {decoder.label}", flush=True)
            samples = write(subject, decoder, limit, self.num_samples, self.batch_size)
            found = np.array([len(ids) for ids in samples.sequences], dtype=np.int64)
            entries.append(
                {
                    "key": decoder.key,
                    "label": decoder.label,
                    **subject.provenance(),
                    **decoder.setting,
                    **base,
                    **compared(found, real, limit, edges),
                    "texts": samples.texts,
                }
            )
        held_out = {"label": HELD_OUT, **compared(real, real, limit, edges)}
        return self._section(base, edges, held_out, entries)

    @staticmethod
    def _documents(subject: Subject, texts: Any, limit: int, count: int | None) -> Counts:
        """Lengths of at most `count` documents, evenly spaced; empty ones are none."""
        documents = [text for text in texts if text]
        if count is not None and count < len(documents):
            documents = [documents[k * len(documents) // count] for k in range(count)]
        return np.array([min(len(ids), limit) for ids in subject.tokenizer.encode_batch(documents)], dtype=np.int64)

    def _section(
        self, base: dict[str, Any], edges: npt.NDArray[np.float64], real: dict[str, Any], entries: list[dict[str, Any]]
    ) -> Section:
        limit = base["limit"]
        record = {"definitions": DEFINITIONS, **base, "edges": edges.tolist(), "held_out": real, "settings": entries}
        rows = [[HELD_OUT, "–", "–", *_figures(real)]]
        rows += [[e["label"], f"{e['ks']:.3f}", f"{e['p_value']:.2g}", *_figures(e)] for e in entries]
        notes = [f"{name}: {DEFINITIONS[name]}." for name in ("ks", "p_value", "never_ended", TRAINING)]
        table = Table(
            f"Lengths in tokens: {self.num_samples} texts of at most {limit} against {base['documents']} documents",
            ["", "KS", "p", "mean ± sd", "10 / 50 / 90 %", "never ended"],
            rows,
            notes,
        )
        written = entries[1:]
        best = min(written, key=lambda e: e["ks"])
        sentence = (
            f"Texts of {best['label']} are most nearly as long as documents: KS {best['ks']:.3f} (p "
            f"{best['p_value']:.2g}; training documents {entries[0]['ks']:.3f}), {best['never_ended']:.1%} never end."
        )
        flags = [
            f"NO-END: {e['never_ended']:.0%} of the texts of {e['label']} have no end within {limit} tokens; of the "
            f"documents {real['never_ended']:.0%}."
            for e in written
            if e["never_ended"] > real["never_ended"] + 0.1
        ]
        return Section(
            "Lengths",
            record,
            [table],
            [sentence],
            flags=flags,
            samples=[Sample(e["label"], text) for e in written for text in e["texts"][: self.show]],
            plots={"lengths": histograms(record)},
            scalars={f"lengths/{slug(e['key'])}/ks": e["ks"] for e in written},
        )


def compared(found: Counts, real: Counts, limit: int, edges: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Figures of the lengths `found`, none above `limit`, and how far they are from `real`."""
    statistic = ks_statistic(found, real)
    return {
        "texts_counted": len(found),
        "ks": statistic,
        "p_value": ks_p_value(statistic, len(found), len(real)),
        "mean": float(found.mean()),
        "sd": float(found.std()),
        "quantiles": [float(q) for q in np.quantile(found, [0.1, 0.5, 0.9])],
        "never_ended": float((found >= limit).mean()),
        "histogram": np.histogram(found, edges)[0].tolist(),
    }


def ks_statistic(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """sup |F_a − F_b| over the two empirical distributions, neither of them empty."""
    one, other = np.sort(np.asarray(a)), np.sort(np.asarray(b))
    places = np.concatenate([one, other])
    shares = [np.searchsorted(x, places, side="right") / len(x) for x in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def ks_p_value(statistic: float, n: int, m: int) -> float:
    """P(D > statistic) for two samples of one continuous distribution: Q((√e + 0.12 + 0.11/√e)·D), e = nm/(n + m),
    Q(x) = 2·Σ (−1)^(k−1)·exp(−2k²x²) (Kolmogorov 1933; the correction: Stephens 1970)."""
    root = math.sqrt(n * m / (n + m))
    x = (root + 0.12 + 0.11 / root) * statistic
    if x < 0.2:  # where the series converges slowly and Q is 1 to twelve digits
        return 1.0
    total = 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(max(total, 0.0), 1.0)


def histograms(record: Mapping[str, Any]) -> Callable[[Any], None]:
    """Share of texts by length: documents as a filled area, a line for each decoder and number of steps."""

    def draw(axes: Any) -> None:
        edges = record["edges"]
        real = np.array(record["held_out"]["histogram"])
        axes.stairs(real / real.sum(), edges, fill=True, color="0.85", label=HELD_OUT)
        for entry in record["settings"]:
            counts = np.array(entry["histogram"])
            style = {"color": "0.3", "linestyle": ":"} if entry["key"] == "real" else {}
            label = f"{entry['label']} (KS {entry['ks']:.2f})"
            axes.stairs(counts / max(counts.sum(), 1), edges, label=label, **style)
        axes.set(xlabel=f"tokens before EOS, at most {record['limit']}", ylabel="share of texts")
        axes.legend(fontsize=6, **BESIDE)

    return draw


def _figures(entry: Mapping[str, Any]) -> list[str]:
    quantiles = " / ".join(f"{q:.0f}" for q in entry["quantiles"])
    return [f"{entry['mean']:.1f} ± {entry['sd']:.1f}", quantiles, f"{entry['never_ended']:.1%}"]


def _left_out(reason: str) -> Section:
    return Section("Lengths", {"settings": [], "reason": reason}, [], unavailable=[reason])
