"""`compare`: trains several models on one dataset over splits and seeds, and keeps every run.

All models share one set of hyper-parameters, stated with the result; nothing is tuned, so nothing but the
epoch is selected, and that on validation nodes only.
"""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

import gfgn
from gfgn.data.dataset import Dataset
from gfgn.train.loop import train_replicas
from gfgn.train.models import HIDDEN, MODELS, find_model
from gfgn.train.replica import Replica, Run
from gfgn.train.statistics import Summary, difference, summarize

DEFAULT_MODELS = ("mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
COLUMNS = (
    *("dataset", "model", "split", "seed", "lr", "weight_decay", "dropout", "lam"),
    *("val", "test", "epoch", "seconds", "num_parameters", "gfgn_version", "torch_version"),
)


@dataclass(frozen=True)
class Comparison:
    """All runs of a comparison.

    Attributes:
        dataset: What was compared on.
        models: Names of the models, in the order given.
        runs: Every run.
        max_epochs: Largest number of epochs of a run.
        patience: Epochs without improvement after which a run ended.
        seconds: Wall-clock time of the whole.
        path: The file with one row a run, or `None`.
    """

    dataset: Dataset
    models: tuple[str, ...]
    runs: tuple[Run, ...]
    max_epochs: int
    patience: int
    seconds: float
    path: Path | None = None

    def of(self, model: str) -> list[Run]:
        """The runs of one model."""
        return [run for run in self.runs if run.model == model]

    def summary(self) -> dict[str, Summary]:
        """Mean, standard deviation and 95% interval of the test score, by model."""
        return {model: summarize(self.of(model)) for model in self.models}

    @property
    def best_baseline(self) -> str | None:
        """The model other than GFGN with the best mean test score. Choosing it by the test score favours the
        baseline."""
        summary = {model: value for model, value in self.summary().items() if not is_gfgn(model)}
        return max(summary, key=lambda model: summary[model].mean, default=None)

    def gain(self, model: str) -> Summary | None:
        """The test score of a GFGN less that of the best baseline, paired by split and seed."""
        baseline = self.best_baseline
        if baseline is None or not is_gfgn(model):
            return None
        return difference(self.of(model), self.of(baseline))

    @property
    def settings(self) -> str:
        """The hyper-parameters, in words."""
        replica = self.runs[0].replica
        return (
            f"two layers, {HIDDEN} hidden units, Adam with learning rate {replica.lr:g} and weight decay "
            f"{replica.weight_decay:g}, dropout {replica.dropout:g}, λ = {replica.lam:g}, "
            f"at most {self.max_epochs} epochs, ending {self.patience} epochs after the best one"
        )


def compare(
    dataset: Dataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    out: str | Path | None = None,
    lr: float = 0.02,
    weight_decay: float = 5e-4,
    dropout: float = 0.5,
    lam: float = 1.0,
    max_epochs: int = 400,
    patience: int = 100,
    device: str = "cpu",
    progress: Callable[[Run], None] | None = None,
) -> Comparison:
    """Trains every model on the first `splits` splits with seeds 0 … `seeds` − 1.

    Args:
        dataset: The dataset.
        models: Names of the models, see `gfgn.train.MODELS`.
        splits: Number of splits.
        seeds: Number of seeds for each split.
        out: Folder in which `runs.csv` gets one row a run, as the run finishes; rows already there stay.
        lr: Learning rate.
        weight_decay: L2 penalty.
        dropout: Dropout rate.
        lam: λ of the GFGN levels.
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement after which a run ends.
        device: Where to train.
        progress: Called with each run as it finishes, after its row is on disk.
    """
    models = tuple(models)
    _check(dataset, models, splits, seeds)
    replicas = [
        Replica(split, seed, lr=lr, weight_decay=weight_decay, dropout=dropout, lam=lam)
        for split in range(splits)
        for seed in range(seeds)
    ]
    start = time.perf_counter()
    runs: list[Run] = []
    path = None if out is None else Path(out) / "runs.csv"
    with contextlib.ExitStack() as stack:
        file = None if path is None else stack.enter_context(_open_rows(path))

        def finished(run: Run) -> None:
            runs.append(run)
            if file is not None:
                _write_row(file, dataset.name, run)
            if progress is not None:
                progress(run)

        for model in models:
            train_replicas(model, dataset, replicas, max_epochs, patience, device, progress=finished)
    return Comparison(dataset, models, tuple(runs), max_epochs, patience, time.perf_counter() - start, path)


def is_gfgn(model: str) -> bool:
    """Whether the model of that name is a GFGN."""
    return model.startswith("gfgn-")


def _check(dataset: Dataset, models: tuple[str, ...], splits: int, seeds: int) -> None:
    if not models:
        raise ValueError(f"models must name at least one of {', '.join(MODELS)}, got none")
    if len(set(models)) < len(models):
        raise ValueError(f"models must be different from each other, got {', '.join(models)}")
    for model in models:
        find_model(model)
    if not dataset.splits:
        raise ValueError(f"dataset must have labels to train on, {dataset.name!r} has none")
    if not 1 <= splits <= len(dataset.splits):
        raise ValueError(f"splits must be 1 to {len(dataset.splits)} for {dataset.name!r}, got {splits}")
    if seeds < 1:
        raise ValueError(f"seeds must be 1 or larger, got {seeds}")


@contextlib.contextmanager
def _open_rows(path: Path) -> Iterator[IO[str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", newline="", encoding="utf-8") as file:
        file.seek(0)
        header = next(csv.reader(file), None)
        if header is None:
            csv.writer(file).writerow(COLUMNS)
            file.flush()
        elif tuple(header) != COLUMNS:
            raise ValueError(f"out must be a folder whose runs.csv has the columns {', '.join(COLUMNS)}, got {path}")
        yield file


def _write_row(file: IO[str], dataset: str, run: Run) -> None:
    replica = run.replica
    row = (
        *(dataset, run.model, replica.split, replica.seed),
        *(replica.lr, replica.weight_decay, replica.dropout, replica.lam),
        *(run.val, run.test, run.epoch, round(run.seconds, 3), run.num_parameters),
        *(gfgn.__version__, torch.__version__),
    )
    csv.writer(file).writerow(row)
    file.flush()
