"""`GFGNClassifier`: classification of the nodes of a graph with the interface of scikit-learn."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gfgn.data.columns import KINDS, Array, RawFeatures, raw_features
from gfgn.data.dataset import NodeDataset, default_metric
from gfgn.data.encoder import Column, FeatureEncoder
from gfgn.data.mapped import is_mapped
from gfgn.data.messages import listed
from gfgn.data.splits import Split
from gfgn.estimator import files
from gfgn.estimator.edges import build_graph
from gfgn.estimator.inputs import Inputs, Labels, to_numpy, unpack
from gfgn.estimator.labels import as_target, draw_validation, is_missing, read_labels, read_validation
from gfgn.estimator.members import (
    SMALLEST,
    Floats,
    Members,
    entropy,
    fit_confidence,
    fit_temperature,
    map_confidence,
    temper,
)
from gfgn.estimator.training import LEVELS, Trained, Training
from gfgn.graph import Graph
from gfgn.ops.features import take_rows
from gfgn.runs.gates import gates_by_dimension
from gfgn.runs.store import Store
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.train.distributed import Processes
from gfgn.train.settings import choose_device
from gfgn.train.task import with_sparse_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gfgn.estimator.inputs import EdgesLike, FeaturesLike, MaskLike, TargetLike, WeightLike
    from gfgn.runs.engine import ProgressCallback

GATE_NODES = 2**14  # training nodes that `smoothing_scores_` are from if training is on samples


class GFGNClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph with Graph Feature Gating Networks.

    Nodes without a label (−1 or NaN in `y`) take part through their features and edges. A part of the labeled nodes
    is for validation: the best epoch, the level, the depth of GFGN+ and, with `trials`, the hyperparameters are chosen
    by it.

    As in scikit-learn, a parameter that is changed after `fit` counts from the next `fit`. Only `device` is that of
    each call, and a changed `directed`, which says how to read the edges, is an error until then.

    Args:
        level: `"graph"`, `"neighbor"` or `"pair"`, see `gfgn.nn.GFGNConv`; `"auto"` trains all three and keeps the one
            with the best validation score.
        model: `"gfgn"`, or `"gfgn-plus"` for GFGN+, see `gfgn.nn.GFGNPlus`.
        replicas: Number of networks, which are trained as one program. They differ in their seed and validation nodes,
            and their probabilities are averaged. The level is chosen by the first two; further networks train up to the
            later one of the best epochs of these.
        hidden_channels: Number of hidden units of all heads together; `heads` must divide it.
        num_layers: Number of layers; by default two, and for GFGN+ one or eight by their validation score.
        heads: Number of gating heads of a hidden layer; `None` for 8, for GFGN+ 1 in networks of at most two layers.
        lam: λ, the largest value of a gate.
        dropout: Dropout rate on the input of every layer.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty on all parameters.
        max_epochs: Largest number of epochs.
        patience: Number of epochs without improvement of the validation score after which training ends.
        metric: Validation score, see `gfgn.metrics.METRICS`; by default that of the dataset, else ROC AUC for two
            classes (accuracy if the validation nodes lack one), accuracy for more, micro-F1 for several labels per
            node.
        class_weights: Whether every class has the same weight in the loss, however many nodes it has.
        scale: `"standard"`: numeric columns are standardized by the mean and standard deviation of the training nodes,
            bags of words and one-hot columns are left alone; `"row"`: rows are divided by the sum of their absolute
            values; `"none"`.
        directed: Whether edges keep their direction; otherwise the opposite of every edge is added.
        val_fraction: Fraction of the labeled nodes for validation, unless `val_mask` is given.
        batch_size: Training nodes per step, each with a sample of its neighborhood. By default a step takes the whole
            graph while that fits into memory, which is measured, else samples for `BATCH_SIZE` nodes.
        fanout: Neighbors per node and layer of a sample.
        trials: Number of random settings of `lr`, `weight_decay`, `dropout` and `lam` to try by successive halving; by
            default the given ones are used.
        device: `"cpu"`, `"cuda"`, `"mps"` or `"auto"`, CUDA if available.
        random_state: Seed of the validation nodes, of initial parameters and of dropout.

    Attributes:
        classes_: The classes in sorted order; the numbers of the labels for several labels per node.
        level_: The level of the networks.
        level_scores_: By level, the validation score that the choice went by.
        best_params_: The hyperparameters, chosen or given; for GFGN+ with the number of layers.
        history_: One entry per network: `"train_loss"`, `"val_loss"` and `"val"`, one value per epoch.
        val_score_: Mean validation score of the networks.
        temperature_: Exponent of the calibration: probabilities are raised to the power `1 / temperature_`.
        confidence_: With at least 1,000 validation nodes, an increasing map of the largest probability that follows:
            confidences and what they become. Otherwise `None`.
        smoothing_scores_: `[F]`: for each feature of `encoder_.feature_names`, how much of it a GFGN at graph level
            takes from the neighbors, from 0 to `lam`.
        encoder_: How features are encoded, see `gfgn.data.FeatureEncoder`.
        n_features_in_, feature_names_in_: As in scikit-learn; the names only if `X` was a data frame or a dataset.

    Example:
        >>> clf = GFGNClassifier(level="auto", replicas=5, random_state=0)
        >>> clf.fit(X, y, edge_index=edge_index)
        >>> clf.predict_proba(X, edge_index=edge_index)
    """

    # With scikit-learn's metadata routing, a pipeline passes edges on without further settings.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"edge_index": True, "edge_weight": True}
    __metadata_request__predict = __metadata_request__predict_proba = __metadata_request__fit
    __metadata_request__decision_function = __metadata_request__transform = __metadata_request__fit
    __metadata_request__score = __metadata_request__fit

    def __init__(
        self,
        level: str = "auto",
        replicas: int = 1,
        *,
        model: str = "gfgn",
        hidden_channels: int = 64,
        num_layers: int | None = None,
        heads: int | None = None,
        lam: float = 1.0,
        dropout: float = 0.5,
        lr: float = 0.02,
        weight_decay: float = 5e-4,
        max_epochs: int = 400,
        patience: int = 100,
        metric: str | None = None,
        class_weights: bool = False,
        scale: str = "standard",
        directed: bool = False,
        val_fraction: float = 0.2,
        batch_size: int | None = None,
        fanout: int = 10,
        trials: int | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.level = level
        self.replicas = replicas
        self.model = model
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.heads = heads
        self.lam = lam
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.metric = metric
        self.class_weights = class_weights
        self.scale = scale
        self.directed = directed
        self.val_fraction = val_fraction
        self.batch_size = batch_size
        self.fanout = fanout
        self.trials = trials
        self.device = device
        self.random_state = random_state

    # --- training ---------------------------------------------------------------------------------

    def fit(
        self,
        X: FeaturesLike,
        y: TargetLike = None,
        edge_index: EdgesLike = None,
        edge_weight: WeightLike = None,
        val_mask: MaskLike = None,
        *,
        callback: ProgressCallback | None = None,
        checkpoint_dir: str | Path | None = None,
        processes: Processes | None = None,
    ) -> Self:
        """Trains the networks.

        Args:
            X: `[N, F]` features of all nodes: an array, a SciPy sparse matrix, a data frame (numbers, booleans,
                categories and dates; missing values allowed) or a tensor; or `GraphNodes`. Or what has edges and labels
                too: a PyG `Data`; the `Reading` of `gfgn.data.read_with_notes`; or a `NodeDataset`, whose features are
                taken as they are. Of these two, test nodes of the first split are left out of training.
            y: `[N]` classes, −1, NaN, `None` or `pd.NA` for a node without a label; or `[N, L]`, 0 or 1, for several
                labels per node.
            edge_index: `[2, E]` array or tensor of sources and targets, as row numbers; or a sparse adjacency matrix, a
                PyG `EdgeIndex` or a `Graph`; or a data frame with the columns `source`, `target` and optionally
                `weight`, or a NetworkX graph, whose nodes are values of the index of `X` if that is a data frame, else
                row numbers. For a graph without edges, an empty `[2, 0]` array.
            edge_weight: `[E]`, 0 or larger; an edge of weight 0 is none.
            val_mask: Validation nodes of all networks: `[N]` booleans (or 0 and 1), or distinct indices. By default
                those of the data, else they are drawn for each network, the same fraction of every class.
            callback: Is told of the progress of training and of finished runs, see `gfgn.runs.ProgressCallback`.
            checkpoint_dir: Folder of checkpoints, from which the same training on samples continues after an
                interruption.
            processes: This process of several that train together, see `gfgn.train.processes`; the first one alone is
                fitted in the end.
        """
        start, given = time.perf_counter(), unpack(X, edge_index, edge_weight, y, val_mask)
        raw = self._features(given)
        num_nodes = given.edges.num_nodes if raw is None else raw.values.shape[0]
        labels = given.labels or read_labels(given.y, num_nodes, given.nodes)
        self._check_parameters()
        if given.edges is None:
            warnings.warn("no edge_index was given: the networks train on a graph without edges", stacklevel=2)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        dataset = self._dataset(given, raw, labels, seed)
        processes = processes or Processes(device=choose_device(self.device))
        folder = None if checkpoint_dir is None else Path(checkpoint_dir)
        with Store(":memory:") as store:
            trained = Training(self, dataset, seed, processes, callback, folder, store).run()
        if processes.rank == 0:
            self._keep(dataset, labels.classes, trained)
            self.facts_["seconds"] = round(time.perf_counter() - start, 2)
        return self

    def _features(self, given: Inputs) -> RawFeatures | None:
        """The features before they are encoded; `None` for those of a dataset, which are taken as they are."""
        X = given.X
        if given.dataset is None:
            return self._raw(X, reset=True)
        names = [column.name for column in X.columns] if isinstance(X, RawFeatures) else given.dataset.feature_names
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        return X if isinstance(X, RawFeatures) else None

    def _dataset(self, given: Inputs, raw: RawFeatures | None, labels: Labels, seed: int) -> NodeDataset:
        """What the networks train on: one split per network, or a single one with the given validation nodes."""
        data = given.dataset
        if given.val_mask is None:
            vals = [draw_validation(labels, self.val_fraction, seed + k) for k in range(self.replicas)]
        else:
            vals = [read_validation(given.val_mask, labels)]
        trains = [labels.known & ~val for val in vals]
        test = np.zeros_like(vals[0])
        if given.labels is not None and data is not None and data.splits:
            test = data.splits[0].test.numpy()
        splits = [Split(*map(torch.from_numpy, (train, val, test))) for train, val in zip(trains, vals, strict=True)]
        metric = self.metric or (default_metric(labels.y, labels.classes.size) if data is None else data.metric)
        if self.metric is None and metric == "roc_auc" and any(np.unique(labels.y[val]).size < 2 for val in vals):
            metric = "accuracy"  # a single class has no ROC curve
        if raw is not None:
            encoder = FeatureEncoder.fit(raw, np.any(trains, axis=0), self.scale)
            x = encoder.transform(raw)
        else:
            assert data is not None
            encoder, x = data.encoder or _unchanged(data), data.x
        if data is None:
            graph = self._graph(given, x.size(0))
            return NodeDataset(
                "X", graph, x, labels.y, labels.classes.size, metric, encoder.feature_names, splits, encoder=encoder
            )
        y = data.y if given.labels is not None else labels.y
        names = None if given.labels is None else data.class_names
        return replace(
            data, x=x, y=y, num_classes=labels.classes.size, metric=metric, feature_names=encoder.feature_names,
            splits=splits, class_names=names, encoder=encoder,
        )  # fmt: skip

    def _keep(self, dataset: NodeDataset, classes: Array, trained: Trained) -> None:
        """Sets what `fit` has learned."""
        configuration, runs = trained.configuration, trained.runs
        states = [run.state for run in runs if run.state is not None]
        names = ("hidden", "layers", "heads", "gate_bias")
        kept = ("layers",) if self.model == "gfgn-plus" else ()
        self.level_, self.level_scores_, self.classes_ = trained.level, trained.level_scores, classes
        self._members = Members(
            model=trained.model,
            in_channels=dataset.num_features,
            out_channels=dataset.num_classes,
            settings={name: configuration[name] for name in names},
            lam=float(configuration["lam"]),
            states={name: torch.stack([state[name] for state in states]) for name in states[0]},
            multilabel=dataset.multilabel,
        )
        assert dataset.encoder is not None
        self.encoder_ = dataset.encoder
        self.best_params_ = {name: value for name, value in configuration.items() if name not in names or name in kept}
        self.history_ = [run.history for run in runs]
        self.val_score_ = float(np.mean([run.val for run in runs]))
        read = sampled_neighbors(dataset, self.fanout) if trained.sampled else dataset
        self.smoothing_scores_ = gates_by_dimension(read, "graph", lam=self._members.lam).cpu().numpy()
        self._calibrate(dataset)
        self._splits = dataset.splits
        self._fit_params = self.get_params(deep=False)
        self.facts_: dict[str, Any] = {
            "name": dataset.name,
            "nodes": dataset.num_nodes,
            "edges": dataset.graph.num_edges,
            "splits": len(dataset.splits),  # of training and validation nodes: one, or one for each network
            "labelled": {name: int(mask.sum()) for name, mask in dataset.splits[0]._asdict().items()},
            "metric": dataset.metric,
            "best_epochs": [run.epoch for run in runs],
        }

    def _calibrate(self, dataset: NodeDataset) -> None:
        """Calibrates by the validation nodes, each predicted by the networks that have it for validation."""
        members, count = self._members, len(dataset.splits)
        x = with_sparse_features(dataset).x
        mask = torch.stack([dataset.splits[k % count].val for k in range(members.count)])
        known = mask.any(0)
        p, mask = members.probabilities(members.logits(x, dataset.graph, known)), mask[:, known].unsqueeze(-1)
        mean = (p * mask).sum(0) / mask.sum(0).clamp(min=1)
        self.temperature_ = fit_temperature(mean, dataset.y[known], dataset.multilabel)
        tempered = temper(mean, self.temperature_, dataset.multilabel)
        self.confidence_ = None if dataset.multilabel else fit_confidence(tempered, dataset.y[known])
        # What `evaluate` reads where there are no test nodes.
        self._validated = known, tempered if self.confidence_ is None else map_confidence(tempered, self.confidence_)

    def _check_parameters(self) -> None:
        if self.level not in ("auto", *LEVELS):
            raise ValueError(f"level must be 'auto', 'graph', 'neighbor' or 'pair', got {self.level!r}")
        if self.model not in ("gfgn", "gfgn-plus"):
            raise ValueError(f"model must be 'gfgn' or 'gfgn-plus', got {self.model!r}")
        for name in ("replicas", "trials", "batch_size", "num_layers"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < 1):
                raise ValueError(f"{name} must be an integer, 1 or larger, got {value!r}")
        if not 0 < self.val_fraction < 1:
            raise ValueError(f"val_fraction must be above 0 and below 1, got {self.val_fraction}")

    # --- input ------------------------------------------------------------------------------------

    def _raw(self, X: object, reset: bool) -> RawFeatures:
        """Features as the encoder takes them, after scikit-learn's checks."""
        X = X if isinstance(X, Tensor) and X.layout != torch.strided else to_numpy(X)
        if not reset and isinstance(X, pd.DataFrame) and hasattr(self, "feature_names_in_"):
            same = len(X.columns) == len(self.feature_names_in_) and set(X.columns) == set(self.feature_names_in_)
            X = X[list(self.feature_names_in_)] if same else X  # matched by name, as tables are
        if isinstance(X, Tensor | pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        return raw_features(X, None if reset else self.encoder_.columns)

    def _graph(self, given: Inputs, num_nodes: int) -> Graph:
        names = given.X.index if isinstance(given.X, pd.DataFrame) else None
        return build_graph(given.edges, given.weight, num_nodes, names, self.directed)

    def encode(self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None) -> NodeDataset:
        """The graph as the networks see it: a dataset with encoded features, and with the labels and splits that `X`
        had, if any. Arguments as for `fit`."""
        check_is_fitted(self)
        return self._encode(unpack(X, edge_index, edge_weight))

    def _encode(self, given: Inputs) -> NodeDataset:
        data, raw, encoder = given.dataset, given.X, self.encoder_
        if data is not None:
            if data.encoder in (None, encoder) and data.feature_names == encoder.feature_names:
                return data
            if isinstance(raw, RawFeatures) and _what_is_held(raw.columns) == _what_is_held(encoder.columns):
                return replace(data, x=encoder.transform(raw), feature_names=encoder.feature_names, encoder=encoder)
            got, known = (
                f"{len(names):,}, such as {listed(names, 3)}" for names in (data.feature_names, encoder.feature_names)
            )
            hint = "; read tables with encoder=clf.encoder_ and class_names" if data.encoder else ""
            raise ValueError(f"X must have the features of the model ({known}), got {data.name!r} with {got}{hint}")
        if self.directed != (fitted := self._fit_params["directed"]):
            raise ValueError(f"directed must be {fitted}, as in fit, got {self.directed}: fit again to change it")
        if given.edges is None and self.facts_["edges"]:
            raise ValueError(
                "edge_index must be given, because the model was trained on a graph with edges; "
                "for nodes without edges, pass an empty [2, 0] array"
            )
        x = encoder.transform(self._raw(raw, reset=False))
        graph = self._graph(given, x.size(0))
        y, names = torch.full((graph.num_nodes,), -1), self.encoder_.feature_names
        return NodeDataset("X", graph, x, y, max(2, len(self.classes_)), "accuracy", names, [], encoder=self.encoder_)

    # --- prediction -------------------------------------------------------------------------------

    def predict_proba(self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None) -> Floats:
        """`[N, C]`: the calibrated probability of each class; or `[N, L]`, of each label.

        The graph may be another one than in `fit`, or the same with new nodes; arguments as for `fit`. A `NodeDataset`
        or a `Reading` must have the features of the model: `read(path, encoder=clf.encoder_, class_names=…)`.
        """
        check_is_fitted(self)
        given = unpack(X, edge_index, edge_weight)
        device = "cpu" if given.dataset is not None and is_mapped(given.dataset.graph) else choose_device(self.device)
        dataset = with_sparse_features(self._encode(given).to(device))
        nodes = slice(None) if given.nodes is None else torch.from_numpy(given.nodes)
        p = self._members.probabilities(self._members.logits(dataset.x, dataset.graph, nodes)).cpu().mean(0)
        p = temper(p, self.temperature_, self._members.multilabel)
        return (p if self.confidence_ is None else map_confidence(p, self.confidence_)).numpy()

    def predict_uncertainty(
        self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None
    ) -> Floats:
        """`[N]`: the entropy of the calibrated probabilities, from 0, where one class is certain, to 1, where all are
        equally probable; for several labels per node, the mean over the labels."""
        return entropy(self.predict_proba(X, edge_index, edge_weight), self._members.multilabel)

    def predict(self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None) -> Array:
        """`[N]`: the most probable class; or `[N, L]`, 0 or 1: the labels whose probability is above one half."""
        p = self.predict_proba(X, edge_index, edge_weight)
        if self._members.multilabel:
            return (p > 0.5).astype(np.int64)
        return np.asarray(self.classes_[p.argmax(1)])

    def decision_function(
        self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None
    ) -> Floats:
        """Log-odds: `[N]` of the second of two classes, `[N, L]` of several labels; for more classes, `[N, C]`
        logarithms of the probabilities."""
        p = np.clip(self.predict_proba(X, edge_index, edge_weight), SMALLEST, 1.0)
        if self._members.multilabel:
            return np.log(p) - np.log(np.clip(1 - p, SMALLEST, 1.0))
        return np.log(p[:, 1]) - np.log(p[:, 0]) if p.shape[1] == 2 else np.log(p)

    def transform(
        self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None
    ) -> NDArray[np.float32]:
        """`[N, replicas * hidden_channels]`: node embeddings, the input of the last layer of every network."""
        check_is_fitted(self)
        given = unpack(X, edge_index, edge_weight)
        data = with_sparse_features(self._encode(given).to(choose_device(self.device)))
        embeddings = self._members.embeddings(data.x, data.graph).cpu().numpy()
        return embeddings if given.nodes is None else embeddings[given.nodes]

    def fit_transform(
        self,
        X: FeaturesLike,
        y: TargetLike = None,
        edge_index: EdgesLike = None,
        edge_weight: WeightLike = None,
        val_mask: MaskLike = None,
    ) -> NDArray[np.float32]:
        """`fit`, then `transform`."""
        return self.fit(X, y, edge_index, edge_weight, val_mask).transform(X, edge_index, edge_weight)

    @property
    def _n_features_out(self) -> int:
        return self._members.count * int(self._members.settings["hidden"])

    def score(
        self,
        X: FeaturesLike,
        y: TargetLike = None,
        sample_weight: ArrayLike | None = None,
        edge_index: EdgesLike = None,
        edge_weight: WeightLike = None,
    ) -> float:
        """Accuracy on the nodes that have a label; for several labels per node, the fraction of nodes without error."""
        true = as_target(unpack(X, edge_index, edge_weight, y).y)
        known = ~is_missing(true)
        true, predicted = true[known], self.predict(X, edge_index, edge_weight)[known]
        if true.dtype.kind == "O":  # because of the missing ones
            true = np.array(true.tolist())
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(true, predicted, sample_weight=weight))

    # --- files and display ------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Saves the fitted classifier, with the parameters that it was fitted with, to a folder: `model.json`,
        `model.safetensors` and `README.md`, a model card."""
        check_is_fitted(self)
        return files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Loads a classifier that `save` has written."""
        loaded: Self = files.load(Path(path), cls)
        return loaded

    @property
    def multilabel_(self) -> bool:
        """Whether nodes have several labels."""
        return self._members.multilabel

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32 for any input
        return tags


def _what_is_held(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Names of columns, and whether they hold numbers, dates or text."""
    return [(column.name, KINDS[column.kind].holds) for column in columns]


def _unchanged(data: NodeDataset) -> FeatureEncoder:
    """An encoder that leaves the features of a dataset as they are."""
    columns = tuple(Column(name) for name in data.feature_names)
    zeros, ones, sparse = (0,) * len(columns), (1.0,) * len(columns), data.x.layout == torch.sparse_csr
    return FeatureEncoder(columns, "none", zeros, ones, zeros, data.num_nodes, sparse)


def sampled_neighbors(dataset: NodeDataset, fanout: int) -> NodeDataset:
    """Some training nodes of the first split with a sample of their neighbors, for a network of one layer."""
    nodes = torch.nonzero(dataset.splits[0].train).view(-1)
    nodes = nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:GATE_NODES]]
    sampler = NeighborSampler.from_graph(dataset.graph, [fanout])
    sample = sampler.sample(nodes)
    kept, train = torch.from_numpy(sample.node), torch.arange(sample.node.size) < nodes.numel()
    none, graph = torch.zeros_like(train), sampler.graph(sample).to(dataset.graph.dtype)
    x, y = take_rows(dataset.x, kept), dataset.y[kept]
    return replace(dataset, graph=graph, x=x, y=y, splits=[Split(train, none, none)], node_ids=None)
