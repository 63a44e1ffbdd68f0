"""The models without a network by name; `gfgn.train.classical` has their code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gfgn.lazy import Lazy

MODULE = "gfgn.train.classical"
WIDE, COMPONENTS = 256, 64  # above this number of features, gradient boosting sees this number of components


@dataclass(frozen=True)
class Classical:
    """A model without a network.

    Attributes:
        candidates: For a dataset, a split and whether classes weigh the same: the fitted model with each value of its
            hyperparameter. The one with the best validation score is chosen.
        reference: The publication it comes from.
        description: What it is, and what is chosen on the validation nodes.
        reads: What it learns from: `"labels"`, `"features"` or `"edges"`.
        multilabel: Whether it is for multi-label data too.
        inductive: Whether it predicts on graphs without training nodes.
    """

    candidates: Callable[..., Any]
    reference: str
    description: str
    reads: str
    multilabel: bool = False
    inductive: bool = True


CLASSICAL: dict[str, Classical] = {
    "majority": Classical(
        Lazy(MODULE, "majority"),
        "the class frequencies",
        "the most frequent class of the training nodes",
        "labels",
        multilabel=True,
    ),
    "logistic-regression": Classical(
        Lazy(MODULE, "logistic_regression"),
        "Cox, The Regression Analysis of Binary Sequences, 1958",
        "on standardized features (sparse ones: divided by the mean length of a row); the L2 penalty is chosen",
        "features",
        multilabel=True,
    ),
    "gradient-boosting": Classical(
        Lazy(MODULE, "gradient_boosting"),
        "Friedman, Greedy Function Approximation: A Gradient Boosting Machine, 2001",
        f"trees on the features, or on {COMPONENTS} principal components of more than {WIDE}; the number of trees is "
        "chosen",
        "features",
    ),
    "label-propagation": Classical(
        Lazy(MODULE, "label_propagation"),
        "Zhou et al., Learning with Local and Global Consistency, NeurIPS 2003",
        "labels of training nodes spread along the edges; α, the weight of the neighbors, is chosen",
        "edges",
        inductive=False,
    ),
}
