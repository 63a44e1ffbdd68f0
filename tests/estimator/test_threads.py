"""Threads that use one fitted classifier at the same time get the answers that each gets alone."""

import copy
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimator.graphs import make_graph

from gfgn import GFGNClassifier

THREADS = 4
Job = Callable[[], Any]


def mixed_frame(num_nodes: int, seed: int) -> tuple[Any, Any, Any]:
    """A data frame of numbers, categories and missing values, labels in words, and edges by the ids of the frame."""
    x, y, edges = make_graph(num_nodes, seed=seed)
    frame = pd.DataFrame(x[:, :3], columns=["a", "b", "c"], index=[f"n{k}" for k in range(num_nodes)])
    frame["kind"] = np.where(x[:, 3] > 0, "red", "blue")
    frame.iloc[::7, 1] = np.nan
    links = pd.DataFrame(frame.index.to_numpy()[edges.T], columns=["source", "target"])
    return frame, np.array(["low", "middle", "top"])[y], links


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def jobs_of(clf: GFGNClassifier, graphs: list[tuple[Any, Any, Any]], folder: Path) -> list[Job]:
    """Every public method, on one graph and then on the other."""

    def saved(X: Any, edges: Any) -> Any:
        path = clf.save(folder / str(threading.get_ident()))
        return GFGNClassifier.load(path).predict_proba(X, edges)

    methods: list[Callable[[Any, Any, Any], Any]] = [
        lambda X, y, edges: clf.predict(X, edges),
        lambda X, y, edges: clf.predict_proba(X, edges),
        lambda X, y, edges: clf.predict_uncertainty(X, edges),
        lambda X, y, edges: clf.decision_function(X, edges),
        lambda X, y, edges: clf.transform(X, edges),
        lambda X, y, edges: clf.score(X, y, edge_index=edges),
        lambda X, y, edges: saved(X, edges),
        lambda X, y, edges: pickle.loads(pickle.dumps(clf)).predict_proba(X, edges),
        lambda X, y, edges: copy.deepcopy(clf).predict_proba(X, edges),
        lambda X, y, edges: np.array([clf._repr_html_() != "", *clf.get_feature_names_out()]),
    ]
    return [lambda method=method, graph=graph: method(*graph) for method in methods for graph in graphs]


def run_at_once(jobs: list[Job], expected: list[Any]) -> None:
    """Every thread does all jobs, in an order of its own."""
    barrier = threading.Barrier(THREADS)

    def work(number: int) -> int:
        order = random.Random(number).sample(range(len(jobs)), len(jobs))
        barrier.wait()
        return sum(not np.array_equal(jobs[k](), expected[k]) for k in order)

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = sum(pool.map(work, range(THREADS)))
    assert wrong == 0, f"{wrong} of {THREADS * len(jobs)} answers differ from those of calls alone"


def process_settings() -> tuple[Any, ...]:
    torch_settings = torch.get_rng_state().tolist(), torch.get_default_dtype(), torch.get_num_threads()
    return *torch_settings, torch.is_grad_enabled(), random.getstate()


@pytest.mark.parametrize("make", [make_graph, mixed_frame])
@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_every_method_from_four_threads(level: str, make: Callable[..., Any], tmp_path: Path) -> None:
    graphs = [make(60, seed=0), make(50, seed=1)]
    X, y, edges = graphs[0]
    clf = GFGNClassifier(level, 2, max_epochs=3, device="cpu", random_state=0).fit(X, y, edges)
    fresh = pickle.loads(pickle.dumps(clf))  # has computed nothing yet
    expected = [job() for job in jobs_of(clf, graphs, tmp_path)]
    before = process_settings()
    run_at_once(jobs_of(fresh, graphs, tmp_path), expected)
    assert process_settings() == before
