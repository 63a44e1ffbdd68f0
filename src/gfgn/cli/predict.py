"""`gfgn predict`: predictions of a saved model as a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import app, echo, notes, user_errors
from gfgn.cli.reading import COLUMNS, Reader, is_store, is_tables, print_notes, takes_graph

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from torch import Tensor

    from gfgn.data import NodeDataset
    from gfgn.estimator import GFGNClassifier

FORMATS = (".csv", ".parquet")


@app.command()
@takes_graph([name for name in COLUMNS if name not in ("split", "drop")], early=False)
def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `gfgn train` has written.")],
    data: Annotated[str, typer.Argument(help="The path of a graph with the same columns, or a dataset.")],
    *,
    reader: Reader,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path("predictions.csv"),
    all_nodes: Annotated[
        bool, typer.Option("--all", help="Predict all nodes, not only those without a label.")
    ] = False,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict the labels of nodes with a saved model; by default of the nodes that have none.

    Columns: id, prediction, confidence, one probability per class, and the uncertainty. Tables are read as in training
    unless options say otherwise.
    """
    start, console = time.perf_counter(), notes(quiet)
    with user_errors():
        if out.suffix not in FORMATS:
            raise ValueError(f"--out must end in {' or '.join(FORMATS)}, got {out}")
        if not (model / "model.json").is_file():
            raise ValueError(f"MODEL must be a folder that `gfgn train` has written, got {model}, without model.json")
        tables = is_tables(data)
        from gfgn.estimator import GFGNClassifier

        classifier = GFGNClassifier.load(model)
        classifier.device = device
        if classifier.multilabel_:
            raise ValueError(f"MODEL must predict one class per node, got {model}, which predicts several labels")
        dataset = _read_tables(data, classifier, reader, console) if tables else _open(data, classifier)
        unlabeled = dataset.y < 0
        frame = _predict(classifier, dataset, unlabeled if not all_nodes and unlabeled.any() else dataset.y > -2)
        _write(frame, out)
    seconds, counts = time.perf_counter() - start, frame["prediction"].value_counts()
    confidence = float(frame["confidence"].mean())
    if json:
        predictions = {str(name): int(count) for name, count in counts.items()}
        options.print_json({
            "model": str(model), "nodes": len(frame), "predictions": predictions, "mean_confidence": confidence,
            "files": {"predictions": str(out)}, "seconds": round(seconds, 3),
        })  # fmt: skip
        return
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:10])
    echo(f"{len(frame):,} nodes predicted: {shown}{', …' if len(counts) > 10 else ''}")
    echo(f"mean confidence {confidence:.2f}; {seconds:.1f} s in all; predictions: {out}")


def _read_tables(source: str, classifier: GFGNClassifier, reader: Reader, console: Console) -> NodeDataset:
    """Tables, encoded as the model expects; what differs from its columns and classes is an error."""
    from gfgn.data import read_with_notes
    from gfgn.literal import literal

    with console.status(literal(f"reading {source}")):
        found = read_with_notes(
            source,
            **(classifier.facts_.get("reading", {}) | reader.columns),
            undirected=not classifier.directed,
            encoder=classifier.encoder_,
            class_names=[str(name) for name in classifier.classes_.tolist()],
        )
    print_notes(source, found.notes, console)
    return found.dataset


def _open(source: str, classifier: GFGNClassifier) -> NodeDataset:
    """A dataset by its name or a graph store, whose features are as the model reads them."""
    from gfgn.data import OnDiskGraph, load

    if not is_store(source):
        return load(source, directed=classifier.directed)
    if classifier.encoder_.scale != "none":
        raise ValueError(f"DATA must be tables, whose columns MODEL encodes, got the graph store {source!r}")
    store, classes = OnDiskGraph.open(source), [str(name) for name in classifier.classes_.tolist()]
    if store.num_classes and (store.class_names or list(map(str, range(store.num_classes)))) != classes:
        raise ValueError(f"DATA must have the classes of MODEL ({', '.join(classes)}), got {store.class_names}")
    return store.dataset([])


def _predict(classifier: GFGNClassifier, dataset: NodeDataset, chosen: Tensor) -> pd.DataFrame:
    """One row per chosen node."""
    import numpy as np
    import pandas as pd

    from gfgn.estimator import GraphNodes
    from gfgn.estimator.members import entropy

    p = classifier.predict_proba(GraphNodes(dataset)[chosen.numpy()])
    ids = np.arange(dataset.num_nodes) if dataset.node_ids is None else dataset.node_ids
    frame = pd.DataFrame({"id": ids[chosen.numpy()], "prediction": classifier.classes_[p.argmax(1)]})
    names = [f"p_{name}" for name in classifier.classes_.tolist()]
    return frame.assign(confidence=p.max(1), **dict(zip(names, p.T, strict=True)), uncertainty=entropy(p))


def _write(frame: pd.DataFrame, path: Path) -> None:
    from gfgn.data.files import atomic_write
    from gfgn.literal import csv_cell

    with atomic_write(path) as unfinished:
        if path.suffix == ".csv":
            text = frame.select_dtypes(exclude="number").map(csv_cell)
            safe = frame.assign(**text).rename(columns=csv_cell)
            safe.to_csv(unfinished, index=False, float_format="%.6g")
        else:
            frame.to_parquet(unfinished, engine="pyarrow", index=False)
