"""What a rule finds, how comparisons are made and counted, and how numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gfgn.paper.evidence import LEVELS, Evidence, Missing
from gfgn.paper.inference import Decision, above, all_of
from gfgn.train.statistics import Estimate

DISASSORTATIVE = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "actor")
ASSORTATIVE = ("cora", "citeseer", "pubmed")
NINE = (*DISASSORTATIVE, *ASSORTATIVE)
SCORED = DISASSORTATIVE[:-1]  # the disassortative graphs in the paper's figures of scores
PAIR_SCORED = ("blogcatalog", "flickr", "texas", "cora")  # the graphs in the paper's figure of GFGN-pair
LAMBDA_DATASETS = ("blogcatalog", "cora")
BASELINES = ("gcn", "gat", "sgc", "arma", "ggnn", "appnp", "geom-gcn")
WITHOUT_GEOM = BASELINES[:-1]  # the baselines of the studies of noise and ogbn-arxiv
PPI_BASELINES = ("graphsage", "vr-gcn", "gaan", "gat", "geniepath", "graphsaint")
ROUNDING = 0.05  # largest rounding error of a figure published with one decimal


class Finding(NamedTuple):
    """What a rule found.

    Attributes:
        result: The p-values of a claim that is a test; of any other, whether it holds, `None` if that is undecided.
        measured: The measured figure as text, with the interval of the comparison that decides.
        values: Its numbers.
    """

    result: Decision | bool | None
    measured: str
    values: Mapping[str, float]


class Compared(NamedTuple):
    """A difference, and the test of whether it is above a value."""

    gap: Estimate
    test: Decision


Comparisons = Mapping[str, Compared]  # by what is compared


# --- comparisons ------------------------------------------------------------------------------------------------------


def compare_models(
    evidence: Evidence,
    study: str,
    datasets: Iterable[str],
    models: Iterable[str],
    others: Iterable[str],
    by: float = 0.0,
    at: float | None = None,
) -> dict[str, Compared]:
    """Compares each of the models with each of the others on each dataset, by more than `by` points. A baseline whose
    runs end at the last epoch allowed is not shown to be behind."""
    compared = {}
    for name in datasets:
        for other in others:
            shown = other in LEVELS or evidence.is_trained(study, name, other, at)
            for model in models:
                gap = evidence.gap(study, name, model, other, at)
                where = name if at is None else f"{name} at {at:g}"
                compared[f"{model} over {other} on {where}"] = Compared(gap, above(gap, by, shown=shown))
    return compared


def compare_groups(larger: Mapping[str, Estimate], smaller: Mapping[str, Estimate]) -> dict[str, Compared]:
    """Compares every pair of two groups of independent estimates."""
    gaps = {f"{one} − {two}": first - second for one, first in larger.items() for two, second in smaller.items()}
    return {name: Compared(gap, above(gap)) for name, gap in gaps.items()}


def all_hold(compared: Comparisons) -> Decision:
    return all_of([each.test for each in compared.values()])


def all_ahead(evidence: Evidence, compared: Comparisons, text: str = "by at least", unit: str = "") -> Finding:
    """All differences are above 0; the text has the smallest, and how many rest on an undertrained baseline."""
    doubtful = sum(each.test.holds == 1.0 and each.gap.mean > 0 for each in compared.values())
    remark = f"; {doubtful} of {len(compared)} are over a baseline whose runs reach the last epoch" if doubtful else ""
    values = {name: each.gap.mean for name, each in compared.items()}
    return Finding(all_hold(compared), f"{text} {_least(compared, unit)}{remark}", values)


def all_listed(compared: Comparisons) -> Finding:
    """All differences are above 0; the text has all of them."""
    text = ", ".join(f"{interval(each.gap)} ({name})" for name, each in compared.items())
    return Finding(all_hold(compared), text, {name: each.gap.mean for name, each in compared.items()})


def all_counted(compared: Comparisons, text: str, digits: int) -> Finding:
    larger = sum(each.gap.mean > 0 for each in compared.values())
    text = f"{text} in {larger} of {len(compared)} pairs of graphs, {weakest(compared, digits)}"
    return Finding(all_hold(compared), text, {name: each.gap.mean for name, each in compared.items()})


def above_least(values: Mapping[str, Estimate], least: float, text: str, digits: int) -> Finding:
    narrow = min(values, key=lambda name: values[name].mean)
    result = all_of([above(value, least) for value in values.values()])
    means = {name: value.mean for name, value in values.items()}
    return Finding(result, f"{text} {mean_interval(values[narrow], digits)} ({narrow})", means)


def _least(compared: Comparisons, unit: str = "") -> str:
    name = min(compared, key=lambda name: compared[name].gap.mean)
    return f"{interval(compared[name].gap, unit=unit)} ({name})"


def weakest(compared: Comparisons, digits: int = 1) -> str:
    """The comparison that speaks most clearly against a claim."""
    name = min(compared, key=lambda name: (compared[name].test.fails, compared[name].gap.mean))
    return f"clearest against it {interval(compared[name].gap, digits)} ({name})"


def optional(remark: Callable[[], str]) -> str:
    """Returns a remark, or nothing if what it reports has not been measured."""
    try:
        return remark()
    except Missing:
        return ""


def pick(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names}


def listing(values: Mapping[str, float], digits: int = 1) -> str:
    return ", ".join(f"{name.removeprefix('gfgn-')} {value:.{digits}f}" for name, value in values.items())


def number(value: float, digits: int = 1, sign: str = "") -> str:
    """Formats a number; what rounds to 0 has no minus sign."""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")


def signed(value: float, digits: int = 1) -> str:
    return number(value, digits, "+")


def interval(gap: Estimate, digits: int = 1, unit: str = "") -> str:
    low, high = gap.interval()
    return f"{signed(gap.mean, digits)}{unit} [{number(low, digits)}, {number(high, digits)}]"


def mean_interval(value: Estimate, digits: int = 1) -> str:
    low, high = value.interval()
    return f"{number(value.mean, digits)} [{number(low, digits)}, {number(high, digits)}]"


def span(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):.2f} to {max(values.values()):.2f}"
