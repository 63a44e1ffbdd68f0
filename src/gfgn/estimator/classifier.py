"""`GFGNClassifier`: classification of the nodes of a graph with the interface of scikit-learn."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.data.encoder import Column, FeatureEncoder, RawFeatures, raw_features
from gfgn.data.mapped import is_mapped
from gfgn.data.splits import Split
from gfgn.estimator import files
from gfgn.estimator.card import FIRST, in_unit, natural
from gfgn.estimator.inputs import Inputs, build_graph, to_numpy, unpack
from gfgn.estimator.labels import draw_validation, is_missing, read_labels, read_validation
from gfgn.estimator.members import SMALLEST, Members, fit_confidence, fit_temperature, map_confidence, temper
from gfgn.graph import Graph
from gfgn.nn.registry import MODELS
from gfgn.ops.features import take_rows
from gfgn.runs.comparison import own_configurations
from gfgn.runs.engine import ProgressCallback, keep_rows, successive_halving
from gfgn.runs.gates import gates_by_dimension
from gfgn.runs.grid import Configuration, make_replica
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.search import SPACE, sample
from gfgn.runs.store import Store
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.train.config import TrainConfig
from gfgn.train.distributed import Processes, train_distributed
from gfgn.train.loop import train_replicas
from gfgn.train.memory import SamplingChoice, choose_sampling
from gfgn.train.replica import Replica, Run
from gfgn.train.settings import choose_device
from gfgn.train.task import with_sparse_features

LEVELS = ("graph", "neighbor", "pair")
GATE_NODES = 2**14  # training nodes that `smoothing_scores_` are from if training is on samples
BATCH_SIZE = 1024  # of training on samples
BLOCKS = 4  # of a step on samples, which up to as many processes divide among them
Nodes = Tensor | slice  # a mask or indices
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Fit:
    """What all training of one call of `fit` shares."""

    dataset: NodeDataset
    seed: int
    device: str
    store: Store
    callback: ProgressCallback | None
    own: Processes
    checkpoint: Path | None
    batch_size: int | None  # of training on samples

    def reports(self, config: TrainConfig) -> dict[str, Any]:
        """The callbacks of `train_replicas`; none without a callback, as rows cost a hash of the data."""
        if self.callback is None:
            return {}
        keep, record = keep_rows(self.store, self.callback), DatasetRecord.of(self.dataset)
        return {
            "progress": lambda run: keep(RunRecord.of(run, record, config, self.device), run.history),
            "status": self.callback.on_status,
        }


class GFGNClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph with Graph Feature Gating Networks.

    Nodes without a label (−1 or NaN in `y`) take part through their features and edges. A part of the labelled nodes
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
        metric: Validation score, see `gfgn.metrics.METRICS`; by default accuracy, or micro-F1 for several labels
            per node.
        class_weights: Whether every class has the same weight in the loss, however many nodes it has.
        scale: `"standard"`: numeric columns are standardized by the mean and standard deviation of the training nodes,
            bags of words and one-hot columns are left alone; `"row"`: rows are divided by the sum of their absolute
            values; `"none"`.
        directed: Whether edges keep their direction; otherwise the opposite of every edge is added.
        val_fraction: Fraction of the labelled nodes for validation, unless `val_mask` is given.
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
        n_features_in_, feature_names_in_: As in scikit-learn; the names only if `X` was a data frame.

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
        random_state: Any = None,
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

    def fit(self, X: Any, y: Any = None, edge_index: Any = None, edge_weight: Any = None, val_mask: Any = None) -> Self:
        """Trains the networks.

        Args:
            X: `[N, F]` features of all nodes: an array, a SciPy sparse matrix, a data frame (numbers, booleans,
                categories and dates; missing values allowed) or a tensor; or `Nodes`; or a PyG `Data`, which has
                everything else too.
            y: `[N]` classes, −1 or NaN for a node without a label; or `[N, L]`, 0 or 1, for several labels per node.
            edge_index: `[2, E]` array or tensor of sources and targets, as row numbers; or a sparse adjacency matrix, a
                PyG `EdgeIndex` or a `Graph`; or a data frame with the columns `source`, `target` and optionally
                `weight`, or a NetworkX graph, whose nodes are values of the index of `X` if that is a data frame, else
                row numbers. `None` for a graph without edges.
            edge_weight: `[E]`, 0 or larger; an edge of weight 0 is none.
            val_mask: Validation nodes of all networks: `[N]` booleans (or 0 and 1), or distinct indices. By default
                they are drawn for each network, the same fraction of every class.
        """
        given = unpack(X, edge_index, edge_weight, y, val_mask)
        raw = self._raw(given.X, reset=True)
        labels = read_labels(given.y, raw.values.shape[0], given.nodes)
        self._check_parameters()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if given.val_mask is None:
            vals = [draw_validation(labels, self.val_fraction, seed + k) for k in range(self.replicas)]
        else:
            vals = [read_validation(given.val_mask, labels)]
        trains = [labels.known & ~val for val in vals]
        encoder = FeatureEncoder.fit(raw, np.any(trains, axis=0), self.scale)
        graph, none = self._graph(given, raw.values.shape[0]), np.zeros_like(vals[0])
        splits = [Split(*map(torch.from_numpy, (train, val, none))) for train, val in zip(trains, vals, strict=True)]
        default = "micro_f1" if labels.y.dim() == 2 else "accuracy"
        dataset = NodeDataset(
            name="X",
            graph=graph,
            x=encoder.transform(raw),
            y=labels.y,
            num_classes=labels.classes.size,
            metric=self.metric or default,
            feature_names=encoder.feature_names,
            splits=splits,
            encoder=encoder,
        )
        return self._fit_dataset(dataset, labels.classes, seed)

    def _fit_dataset(
        self,
        dataset: NodeDataset,
        classes: NDArray[Any],
        seed: int,
        callback: ProgressCallback | None = None,
        own: Processes | None = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Trains each network on one of the splits of a dataset, by turns.

        `own` is this process of several; the first one alone is fitted in the end. Training on samples continues from
        checkpoints in a folder.
        """
        self._check_parameters()
        start, own = time.perf_counter(), own or Processes(device=choose_device(self.device))
        size = self._choose_batch_size(dataset, own)
        with Store(":memory:") as store:
            runs, configuration = self._choose(_Fit(dataset, seed, own.device, store, callback, own, checkpoint, size))
        if own.rank > 0:
            return self
        self._keep(dataset, runs, configuration, classes, sampled=size is not None)
        self.n_features_in_ = len(self.encoder_.columns)
        self._fit_params = self.get_params(deep=False)
        self._facts["seconds"] = round(time.perf_counter() - start, 2)
        return self

    def _choose_batch_size(self, dataset: NodeDataset, own: Processes) -> int | None:
        """`batch_size`, or one where the whole graph does not fit into memory; says which was chosen and why."""
        if self.batch_size is not None:
            choice = SamplingChoice(
                True, f"{dataset.name}: steps take samples, as batch_size={self.batch_size} asks for"
            )
        elif own.count > 1:
            choice = SamplingChoice(
                True, f"{dataset.name}: steps take samples, which {own.count} processes divide among them"
            )
        else:
            configuration = self._configurations()[-1]  # the deepest
            together = min(self.replicas, FIRST, torch.get_num_threads()) if own.device == "cpu" else 1
            model = self._model("pair" if self.level == "auto" else self.level)
            choice = choose_sampling(model, dataset, make_replica(configuration, 0, 0), own.device, together)
        if own.rank == 0:
            _logger.info(choice.reason)
        if not choice.sampled:
            return None
        for name, none in (("trials", None), ("class_weights", False), ("model", "gfgn")):
            if (value := getattr(self, name)) != none:
                raise ValueError(f"{name} must be {none!r} for training on samples, got {value!r} ({choice.reason})")
        return self.batch_size or BATCH_SIZE

    def _choose(self, fit: _Fit) -> tuple[list[Run], Configuration]:
        """Trains the first networks of every level and the others of the best one: its networks and configuration."""
        best = -np.inf
        self.level_scores_: dict[str, float] = {}
        first = range(min(self.replicas, FIRST))
        levels, callback = LEVELS if self.level == "auto" else (self.level,), fit.callback or ProgressCallback()
        for level in levels:
            configurations = self._tune(fit, level)
            callback.on_model_begin(fit.dataset.name, self._model(level), len(first) * len(configurations), 0)
            for configuration in configurations:
                runs = self._train(fit, level, configuration, first, self.max_epochs)
                score = float(np.mean([run.val for run in runs]))
                # A lower loss decides between equal scores, which are frequent with few validation nodes.
                rank = score - 1e-6 * float(np.mean([run.history["val_loss"][run.epoch] for run in runs]))
                self.level_scores_[level] = max(score, self.level_scores_.get(level, score))
                if rank > best:
                    best, self.level_, chosen, found = rank, level, configuration, runs
        rest = range(first.stop, self.replicas)
        epochs = max(run.epoch for run in found) + 1
        runs = [*found, *self._train(fit, self.level_, chosen, rest, epochs)]
        for level in levels:
            callback.on_model_end(fit.dataset.name, self._model(level))
        return runs, chosen

    def _train(
        self, fit: _Fit, level: str, configuration: Configuration, networks: Sequence[int], max_epochs: int
    ) -> list[Run]:
        splits = len(fit.dataset.splits)
        replicas = [make_replica(configuration, k % splits, fit.seed + k) for k in networks]
        config = TrainConfig(max_epochs, self.patience, class_weights=self.class_weights)
        if fit.batch_size is None:
            options = {"keep_state": True, "gates": False, "device": fit.device, **fit.reports(config)}
            runs = train_replicas(self._model(level), fit.dataset, replicas, **asdict(config), **options)
        else:
            runs = [self._train_on_samples(fit, self._model(level), replica, config) for replica in replicas]
        for run in runs:
            if run.diverged:
                raise ValueError(f"training diverged with lr={run.replica.lr}: use a smaller lr, or scale='standard'")
        return runs

    def _train_on_samples(self, fit: _Fit, model: str, replica: Replica, config: TrainConfig) -> Run:
        """One network. A step has blocks that several processes divide among them, as many for one process."""
        assert fit.batch_size is not None
        blocks, reports = max(BLOCKS, fit.own.count), fit.reports(config)
        sampling = (("batch_size", -(-fit.batch_size // blocks)), ("fanout", self.fanout))
        replica = replace(replica, options=tuple(sorted((*replica.options, *sampling))))
        options: dict[str, Any] = {"blocks_per_step": blocks, "checkpoint": fit.checkpoint}
        options["status"] = reports.get("status")
        run = train_distributed(model, fit.dataset, replica, config, fit.own, **options)
        if "progress" in reports:
            reports["progress"](run)
        return run

    def _model(self, level: str) -> str:
        return model_name(self.model, level)

    def _configurations(self) -> list[Configuration]:
        """The given hyperparameters with every variant. One that is not the default wins over that of a variant."""
        values = {"lr": self.lr, "weight_decay": self.weight_decay, "dropout": self.dropout, "lam": self.lam}
        defaults = inspect.signature(type(self)).parameters
        given = {name: value for name, value in values.items() if value != defaults[name].default}
        return [values | variant | given | self._architecture() for variant in self._variants()]

    def _architecture(self) -> Configuration:
        # A learned bias, because the mean of a standardized feature, which the gates read, is 0.
        heads = MODELS[self._model("graph")].options["heads"].default if self.heads is None else self.heads
        return {"hidden": self.hidden_channels, "heads": heads, "gate_bias": 0.0}

    def _variants(self) -> list[Configuration]:
        """Depths, with what belongs to them; a single one if it is given."""
        variants = [dict(variant) for variant in MODELS[self._model("graph")].variants] or [{"layers": 2}]
        if self.num_layers is None:
            return variants
        shallower = [each for each in variants if each["layers"] <= self.num_layers] or variants
        return [shallower[-1] | {"layers": self.num_layers}]

    def _tune(self, fit: _Fit, level: str) -> list[Configuration]:
        """The given hyperparameters with every variant, or the best of `trials` random ones."""
        if self.trials is None:
            return self._configurations()
        drawn = own_configurations(self._variants(), sample(SPACE, self.trials, fit.seed), {}, drawn=True)
        configurations = [each | self._architecture() for each in drawn]
        config = TrainConfig(self.max_epochs, self.patience, class_weights=self.class_weights)
        splits = range(min(len(fit.dataset.splits), FIRST))
        search = (fit.store, fit.dataset, self._model(level), configurations, splits, [fit.seed])
        return [successive_halving(*search, config=config, device=fit.device, callback=fit.callback).best]

    def _keep(
        self, dataset: NodeDataset, runs: list[Run], configuration: Configuration, classes: NDArray[Any], sampled: bool
    ) -> None:
        """Sets what `fit` has learned."""
        states = [run.state for run in runs if run.state is not None]
        names = ("hidden", "layers", "heads", "gate_bias")
        kept = ("layers",) if self.model == "gfgn-plus" else ()
        self._members = Members(
            model=self._model(self.level_),
            in_channels=dataset.num_features,
            out_channels=dataset.num_classes,
            settings={name: configuration[name] for name in names},
            lam=float(configuration["lam"]),
            states={name: torch.stack([state[name] for state in states]) for name in states[0]},
            multilabel=dataset.multilabel,
        )
        self.classes_ = classes
        assert dataset.encoder is not None
        self.encoder_ = dataset.encoder
        self.best_params_ = {name: value for name, value in configuration.items() if name not in names or name in kept}
        self.history_ = [run.history for run in runs]
        self.val_score_ = float(np.mean([run.val for run in runs]))
        read = sampled_neighbors(dataset, self.fanout) if sampled else dataset
        self.smoothing_scores_ = gates_by_dimension(read, "graph", lam=self._members.lam).cpu().numpy()
        self._calibrate(dataset)
        parts = {name: int(mask.sum()) for name, mask in dataset.splits[0]._asdict().items()}
        self._facts: dict[str, Any] = {
            "nodes": dataset.num_nodes,
            "edges": dataset.graph.num_edges,
            "labelled": parts,
            "splits": len(dataset.splits),  # of training and validation nodes: one, or one for each network
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

    def _raw(self, X: Any, reset: bool) -> RawFeatures:
        """Features as the encoder takes them, after scikit-learn's checks."""
        X = X if isinstance(X, Tensor) and X.layout != torch.strided else to_numpy(X)
        if not reset and hasattr(X, "iloc") and hasattr(self, "feature_names_in_"):
            same = len(X.columns) == len(self.feature_names_in_) and set(X.columns) == set(self.feature_names_in_)
            X = X[list(self.feature_names_in_)] if same else X  # matched by name, as tables are
        if isinstance(X, Tensor) or hasattr(X, "iloc"):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        return raw_features(X, None if reset else self.encoder_.columns)

    def _graph(self, given: Inputs, num_nodes: int) -> Graph:
        names = given.X.index if hasattr(given.X, "iloc") else None
        return build_graph(given.edges, given.weight, num_nodes, names, self.directed)

    def _encode(self, X: Any, edge_index: Any, edge_weight: Any) -> tuple[NodeDataset, NDArray[np.int64] | slice]:
        """The nodes to predict as an unlabelled dataset, and which of them are asked for."""
        check_is_fitted(self)
        if self.directed != (fitted := self._fit_params["directed"]):
            raise ValueError(f"directed must be {fitted}, as in fit, got {self.directed}: fit again to change it")
        given = unpack(X, edge_index, edge_weight)
        if given.edges is None and self._facts["edges"]:
            raise ValueError(
                "edge_index must be given, because the model was trained on a graph with edges; "
                "for nodes without edges, pass an empty [2, 0] array"
            )
        raw = self._raw(given.X, reset=False)
        graph = self._graph(given, raw.values.shape[0])
        dataset = self._unlabelled(self.encoder_.transform(raw), graph)
        return dataset, slice(None) if given.nodes is None else given.nodes

    def _unlabelled(self, x: Tensor, graph: Graph) -> NodeDataset:
        """A dataset of encoded features without labels."""
        y = torch.full((graph.num_nodes,), -1)
        names = self.encoder_.feature_names
        return NodeDataset("X", graph, x, y, max(2, len(self.classes_)), "accuracy", names, [], encoder=self.encoder_)

    # --- prediction -------------------------------------------------------------------------------

    def _member_probabilities(self, dataset: NodeDataset, nodes: Nodes = slice(None)) -> Tensor:
        """`[R, nodes, C]`: the uncalibrated probabilities of each network for nodes of an encoded dataset."""
        device = "cpu" if is_mapped(dataset.graph) else choose_device(self.device)
        data = with_sparse_features(dataset.to(device))
        return self._members.probabilities(self._members.logits(data.x, data.graph, nodes)).cpu()

    def _joint_probabilities(self, members: Tensor) -> NDArray[np.float64]:
        """`[N, C]`: the calibrated mean of `[R, N, C]` probabilities."""
        p = temper(members.mean(0), self.temperature_, self._members.multilabel)
        return (p if self.confidence_ is None else map_confidence(p, self.confidence_)).numpy()

    def predict_proba(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> NDArray[np.float64]:
        """`[N, C]`: the calibrated probability of each class; or `[N, L]`, of each label.

        The graph may be another one than in `fit`, or the same with new nodes; arguments as for `fit`.
        """
        dataset, nodes = self._encode(X, edge_index, edge_weight)
        return self._probabilities(dataset)[nodes]

    def _probabilities(self, dataset: NodeDataset, nodes: Nodes = slice(None)) -> NDArray[np.float64]:
        """The probabilities for nodes of an encoded dataset."""
        return self._joint_probabilities(self._member_probabilities(dataset, nodes))

    def predict_uncertainty(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> NDArray[np.float64]:
        """`[N]`: the entropy of the calibrated probabilities, from 0, where one class is certain, to 1, where all are
        equally probable; for several labels per node, the mean over the labels."""
        return self._uncertainty(self.predict_proba(X, edge_index, edge_weight))

    def _uncertainty(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[N]`: the uncertainty that goes with probabilities, see `predict_uncertainty`."""
        p = probabilities
        if self._members.multilabel:
            entropy = (entr(p) + entr(1 - p)).mean(1) / np.log(2)
        else:
            entropy = entr(p).sum(1) / np.log(p.shape[1])
        return np.asarray(np.minimum(entropy, 1.0))  # which rounding may exceed

    def predict(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> NDArray[Any]:
        """`[N]`: the most probable class; or `[N, L]`, 0 or 1: the labels whose probability is above one half."""
        return self._decide(self.predict_proba(X, edge_index, edge_weight))

    def _decide(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """The predictions that go with probabilities."""
        if self._members.multilabel:
            return (probabilities > 0.5).astype(np.int64)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    def decision_function(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> NDArray[np.float64]:
        """Log-odds: `[N]` of the second of two classes, `[N, L]` of several labels; for more classes, `[N, C]`
        logarithms of the probabilities."""
        p = np.clip(self.predict_proba(X, edge_index, edge_weight), SMALLEST, 1.0)
        if self._members.multilabel:
            return np.log(p) - np.log(np.clip(1 - p, SMALLEST, 1.0))
        return np.log(p[:, 1]) - np.log(p[:, 0]) if p.shape[1] == 2 else np.log(p)

    def transform(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> NDArray[np.float32]:
        """`[N, replicas * hidden_channels]`: node embeddings, the input of the last layer of every network."""
        dataset, nodes = self._encode(X, edge_index, edge_weight)
        data = with_sparse_features(dataset.to(choose_device(self.device)))
        return self._members.embeddings(data.x, data.graph).cpu().numpy()[nodes]

    def fit_transform(
        self, X: Any, y: Any = None, edge_index: Any = None, edge_weight: Any = None, val_mask: Any = None
    ) -> NDArray[np.float32]:
        """`fit`, then `transform`."""
        return self.fit(X, y, edge_index, edge_weight, val_mask).transform(X, edge_index, edge_weight)

    @property
    def _n_features_out(self) -> int:
        return self._members.count * int(self._members.settings["hidden"])

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, edge_index: Any = None, edge_weight: Any = None
    ) -> float:
        """Accuracy on the nodes that have a label; for several labels per node, the fraction of nodes without error."""
        from sklearn.metrics import accuracy_score

        true = np.asarray(to_numpy(unpack(X, edge_index, edge_weight, y).y))
        true = true[:, 0] if true.ndim == 2 and true.shape[1] == 1 else true
        known = ~is_missing(true)
        true, predicted = true[known], self.predict(X, edge_index, edge_weight)[known]
        if true.dtype.kind == "O":  # because of the missing ones
            true = np.array(true.tolist())
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(true, predicted, sample_weight=weight))

    def _describe(self, **facts: Any) -> None:
        """Adds facts, such as scores on test nodes, to what `save` writes and the model card shows."""
        self._facts |= facts

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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32 for any input
        return tags

    def _repr_html_inner(self) -> str:
        page: str = super()._repr_html_inner()
        return page + self._summary_html() if self.__sklearn_is_fitted__() else page

    def _summary_html(self) -> str:
        """What was learned, as a small table: level, scores, classes, and the features with extreme gates."""
        names, order = self.encoder_.feature_names, np.argsort(self.smoothing_scores_)
        metric = self._facts["metric"]
        rows = {
            "level": f"{self.level_} (validation: "
            + ", ".join(f"{level} {in_unit(metric, natural(metric, x))}" for level, x in self.level_scores_.items())
            + ")",
            "networks": f"{self._members.count}, trained on {self._facts['nodes']:,} nodes "
            f"and {self._facts['edges']:,} edges",
            "classes": ", ".join(map(str, self.classes_[:10].tolist())) + (" …" if len(self.classes_) > 10 else ""),
            "most from neighbors": ", ".join(f"{names[k]} ({self.smoothing_scores_[k]:.2f})" for k in order[:-6:-1]),
            "least from neighbors": ", ".join(f"{names[k]} ({self.smoothing_scores_[k]:.2f})" for k in order[:5]),
        }
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        return f"<table>{cells}</table>"


def model_name(model: str, level: str) -> str:
    """The name in the registry of `"gfgn"` or `"gfgn-plus"` with a level."""
    return "gfgn-plus" if (model, level) == ("gfgn-plus", "neighbor") else f"{model}-{level}"


def as_input(dataset: NodeDataset) -> NodeDataset:
    """The dataset with an encoder, which changes nothing if it has none of its own."""
    if dataset.encoder is not None:
        return dataset
    columns = tuple(Column(name) for name in dataset.feature_names)
    zeros, ones, sparse = (0,) * len(columns), (1.0,) * len(columns), dataset.x.layout == torch.sparse_csr
    return replace(dataset, encoder=FeatureEncoder(columns, "none", zeros, ones, zeros, dataset.num_nodes, sparse))


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
