"""`gfgn predict`: predictions of a saved model as a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli import options
from gfgn.cli.app import Device, app, echo, notes, user_errors
from gfgn.cli.reading import ReadOptions, is_store, print_notes

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from torch import Tensor

    from gfgn.data import NodeDataset
    from gfgn.estimator import GFGNClassifier

FORMATS = (".csv", ".parquet")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `gfgn train` has written.")],
    data: Annotated[str, typer.Argument(help="The path of a graph with the same columns, or a dataset.")],
    *,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path("predictions.csv"),
    all_nodes: Annotated[
        bool, typer.Option("--all", help="Predict all nodes, not only those without a label.")
    ] = False,
    id: Annotated[str | None, typer.Option(help="Column of ids.", show_default="as in training")] = None,
    label: Annotated[str | None, typer.Option(help="Column of labels.", show_default="as in training")] = None,
    source: Annotated[str | None, typer.Option(help="Column of sources.", show_default="as in training")] = None,
    target: Annotated[str | None, typer.Option(help="Column of targets.", show_default="as in training")] = None,
    sep: Annotated[str | None, typer.Option(help="Separator of CSV files.", show_default="as in training")] = None,
    encoding: Annotated[str | None, typer.Option(help="Their encoding.", show_default="as in training")] = None,
    skip_unknown: Annotated[bool, typer.Option("--skip-unknown", help="Leave out edges with an unknown id.")] = False,
    device: Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict the labels of nodes with a saved model; by default of the nodes that have none.

    Columns: id, prediction, confidence, one probability per class, and the uncertainty.
    """
    from gfgn.estimator import GFGNClassifier

    start, console = time.perf_counter(), notes(quiet)
    with user_errors():
        if out.suffix not in FORMATS:
            raise ValueError(f"--out must end in {' or '.join(FORMATS)}, got {out}")
        classifier = GFGNClassifier.load(model)
        classifier.device = device
        if classifier.multilabel_:
            raise ValueError(f"MODEL must predict one class per node, got {model}, which predicts several labels")
        options_given = ReadOptions(
            id=id, label=label, source=source, target=target, sep=sep, encoding=encoding, skip_unknown=skip_unknown
        )
        given = {name: value for name, value in options_given.columns().items() if value}
        dataset = _open(data, classifier, given, console)
        chosen = (dataset.y < 0) if not all_nodes and bool((dataset.y < 0).any()) else dataset.y > -2
        frame = _predict(classifier, dataset, chosen)
        _write(frame, out)
    seconds = time.perf_counter() - start
    counts = frame["prediction"].value_counts()
    result: dict[str, Any] = {
        "model": str(model),
        "nodes": len(frame),
        "predictions": {str(k): int(n) for k, n in counts.items()},
    }
    result |= {"mean_confidence": float(frame["confidence"].mean()), "files": {"predictions": str(out)}}
    if json:
        options.print_json(result | {"seconds": round(seconds, 3)})
        return
    shown = ", ".join(f"{name} {count:,}" for name, count in list(result["predictions"].items())[:10])
    echo(f"{len(frame):,} nodes predicted: {shown}{', …' if len(counts) > 10 else ''}")
    echo(f"mean confidence {result['mean_confidence']:.2f}; {seconds:.1f} s in all; predictions: {out}")


def _open(source: str, classifier: GFGNClassifier, given: dict[str, Any], console: Console) -> NodeDataset:
    """The graph, encoded as the model expects; what differs from its columns and classes is an error."""
    from gfgn.data import DATASETS, load, read_with_notes
    from gfgn.literal import literal

    path, classes = Path(source), [str(name) for name in classifier.classes_.tolist()]
    if is_store(path):
        return _open_store(path, classifier, classes)
    if source.lower() in DATASETS or not path.exists():
        if path.name != source:
            raise ValueError(f"DATA must be the path of a graph or the name of a dataset, got {source!r}: no such file")
        dataset = load(source, directed=classifier.directed)
        _check_features(source, dataset.feature_names, classifier.encoder_.feature_names)
        return dataset
    reading = dict(classifier.facts_.get("reading", {})) | given
    with console.status(literal(f"reading {source}")):
        found = read_with_notes(
            source, **reading, undirected=not classifier.directed, encoder=classifier.encoder_, class_names=classes
        )
    print_notes(source, found.notes, console)
    return found.dataset


def _open_store(path: Path, classifier: GFGNClassifier, classes: list[str]) -> NodeDataset:
    """A graph store, whose features are as the model reads them: its encoder must change nothing."""
    from gfgn.data import OnDiskGraph

    if classifier.encoder_.scale != "none":
        raise ValueError(f"DATA must be tables, whose columns MODEL encodes, got the graph store {str(path)!r}")
    store = OnDiskGraph.open(path)
    _check_features(str(path), store.feature_names, classifier.encoder_.feature_names)
    if store.num_classes and (store.class_names or list(map(str, range(store.num_classes)))) != classes:
        raise ValueError(f"DATA must have the classes of MODEL ({', '.join(classes)}), got {store.class_names}")
    return store.dataset([])


def _check_features(source: str, names: list[str], expected: list[str]) -> None:
    if names != expected:
        got, known = (f"{len(part):,}, such as {', '.join(part[:3])}" for part in (names, expected))
        raise ValueError(f"DATA must have the features of the model ({known}), got {source!r} with {got}")


def _predict(classifier: GFGNClassifier, dataset: NodeDataset, chosen: Tensor) -> pd.DataFrame:
    """One row per chosen node."""
    import numpy as np
    import pandas as pd

    from gfgn.estimator import GraphNodes
    from gfgn.estimator.members import entropy

    p = classifier.predict_proba(GraphNodes(dataset)[chosen.numpy()])
    ids = np.arange(dataset.num_nodes) if dataset.node_ids is None else dataset.node_ids
    columns: dict[str, Any] = {
        "id": ids[chosen.numpy()],
        "prediction": classifier.classes_[p.argmax(1)],
        "confidence": p.max(1),
    }
    columns |= {f"p_{name}": p[:, k] for k, name in enumerate(classifier.classes_.tolist())}
    return pd.DataFrame(columns | {"uncertainty": entropy(p)})


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
