"""A fitted classifier in a folder: `model.json`, `model.safetensors` and `README.md`, the model card.

Parameters are in safetensors' format and everything else is JSON, so that loading a model executes nothing. A file of
another version or with unknown content is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator
from torch import Tensor

from gfgn.data.encoder import FeatureEncoder
from gfgn.data.files import atomic_write
from gfgn.estimator.card import model_card
from gfgn.estimator.members import Members
from gfgn.nn.registry import MODELS
from gfgn.runs.record import versions
from gfgn.train.program import is_running

FORMAT, VERSION = "gfgn-classifier", 1
SETTINGS, TENSORS, CARD = "model.json", "model.safetensors", "README.md"
FITTED: dict[str, Any] = {
    "level_": str,
    "level_scores_": dict,
    "best_params_": dict,
    "history_": list,
    "val_score_": float,
    "temperature_": float,
    "confidence_": (list, type(None)),
    "n_features_in_": int,
}
KINDS = FITTED | {"smoothing_scores_": list, "feature_names_in_": (list, type(None))}
CONTENT = {"format", "version", "parameters", "fitted", "classes", "encoder", "network", "facts", "made", "sha256"}


class ModelError(ValueError):
    """Raised for a folder that does not hold a model this version can read."""


def save(classifier: BaseEstimator, folder: Path) -> Path:
    """Writes the three files and returns the folder; files of an earlier model are replaced."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"path must be a folder, got the file {folder}")
    members = classifier._members
    tensors = save_tensors({name: value.contiguous() for name, value in members.states.items()})
    network = ("model", "in_channels", "out_channels", "settings", "lam", "multilabel")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {
            name: _plain(value) for name, value in (classifier._fit_params | {"device": classifier.device}).items()
        },
        "fitted": {name: getattr(classifier, name) for name in FITTED}
        | {"smoothing_scores_": classifier.smoothing_scores_.astype(np.float64).tolist()}
        | {"feature_names_in_": list(getattr(classifier, "feature_names_in_", [])) or None},
        "classes": {"dtype": classifier.classes_.dtype.kind, "values": classifier.classes_.tolist()},
        "encoder": classifier.encoder_.to_json(),
        "network": {name: _plain(getattr(members, name)) for name in network},
        "facts": classifier.facts_,
        "made": {"date": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()},
        "sha256": hashlib.sha256(tensors).hexdigest(),
    }
    with atomic_write(folder / TENSORS) as path:
        path.write_bytes(tensors)
    with atomic_write(folder / SETTINGS) as path:
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with atomic_write(folder / CARD) as path:
        path.write_text(model_card(content, classifier.encoder_.feature_names), encoding="utf-8")
    return folder


def load(folder: Path, kind: type[Any]) -> Any:
    """Reads a classifier of the class `kind`; raises a `ModelError` that names the file and what is wrong with it."""
    for name in (SETTINGS, TENSORS):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} must be a folder with {SETTINGS} and {TENSORS}, got none with {name}")
    content, data = _read_settings(folder / SETTINGS), (folder / TENSORS).read_bytes()
    if hashlib.sha256(data).hexdigest() != content["sha256"]:
        raise ModelError(f"{folder / TENSORS} does not belong to {SETTINGS}: it is damaged or of another model")
    with _explained(folder / SETTINGS):
        classifier = kind(**content["parameters"])
        classifier._fit_params = classifier.get_params(deep=False)
        _check_fitted(content["fitted"])
        for name, value in content["fitted"].items():
            setattr(classifier, name, value)
        if classifier.feature_names_in_ is None:
            del classifier.feature_names_in_
        else:
            classifier.feature_names_in_ = np.array(classifier.feature_names_in_, dtype=object)
        classifier.smoothing_scores_ = np.array(classifier.smoothing_scores_, dtype=np.float32)
        classifier.classes_ = _classes(content["classes"])
        classifier.encoder_ = FeatureEncoder.from_json(content["encoder"])
        classifier.facts_ = content["facts"]
        classifier._members = Members(**content["network"], states=load_tensors(data))
        _check_tensors(classifier._members)
    return classifier


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} must be JSON, got: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelError(f"{path} must have the format {FORMAT!r}, got something else")
    if content.get("version") != VERSION:
        newer = isinstance(content.get("version"), int) and content["version"] > VERSION
        advice = "; update gfgn to read it" if newer else ""
        raise ModelError(f"{path} must be of version {VERSION}, got version {content.get('version')!r}{advice}")
    if content.keys() != CONTENT:
        different = ", ".join(sorted(content.keys() ^ CONTENT))
        raise ModelError(f"{path} must have the entries of version {VERSION}, but it differs in: {different}")
    return content


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns the exceptions of malformed content into a `ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, SafetensorError) as error:
        raise ModelError(f"{path} holds something this version does not understand: {error}") from error


def _check_fitted(fitted: dict[str, Any]) -> None:
    if fitted.keys() != KINDS.keys():
        raise ModelError(f"{SETTINGS} must have the fitted {', '.join(KINDS)}, got {', '.join(fitted):.200}")
    for name, kinds in KINDS.items():
        if not isinstance(fitted[name], kinds):
            raise ModelError(f"{SETTINGS} must have a valid {name}, got {fitted[name]!r:.100}")
    confidence = fitted["confidence_"]
    if not 0 < fitted["temperature_"] < math.inf or (confidence and not np.isfinite(_pairs(confidence)).all()):
        raise ModelError(f"{SETTINGS} must have a finite calibration, got something else")


def _pairs(curve: list[Any]) -> NDArray[Any]:
    """The curve of `fit_confidence` as two rows of the same length."""
    pairs = np.array(curve, dtype=np.float64)
    if pairs.ndim != 2 or len(pairs) != 2 or not pairs.size:
        raise ModelError(f"{SETTINGS} must have two lists in confidence_, got something else")
    return pairs


def _check_tensors(members: Members) -> None:
    if members.model not in MODELS:  # a name such as package.module:Class would be code
        raise ModelError(f"{SETTINGS} must name a model of gfgn, got {members.model!r:.100}")
    network = members.build()
    learned: dict[str, Tensor] = dict(network.named_parameters())
    learned |= {name: value for name, value in network.named_buffers() if is_running(name)}
    expected = {name: tuple(value.shape) for name, value in learned.items()}
    got = {name: tuple(value.shape[1:]) for name, value in members.states.items()}
    if expected != got or len({value.size(0) for value in members.states.values()}) != 1:
        raise ModelError(f"{TENSORS} must hold the parameters {expected}, got {got}")


def _plain(value: Any) -> Any:
    """A parameter as JSON has it; a random state other than an integer cannot be kept."""
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str | dict) else None


def _classes(content: dict[str, Any]) -> NDArray[Any]:
    kinds: dict[str, Any] = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_, "U": np.str_, "O": object}
    return np.array(content["values"], dtype=kinds.get(content["dtype"], object))
