"""A fitted classifier in a folder: `model.json`, `model.safetensors` and `README.md`, the model card.

Parameters are in safetensors' format and everything else is JSON, so that loading a model executes nothing. A digest of
both shows whether one of them was changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from gfgn.data.encoder import FeatureEncoder
from gfgn.data.files import atomic_write
from gfgn.estimator.card import model_card
from gfgn.estimator.members import Members
from gfgn.nn.registry import MODELS
from gfgn.runs.record import versions
from gfgn.train.program import is_running

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Json: TypeAlias = Any  # what JSON holds

FORMAT, VERSION = "gfgn-classifier", 2
SETTINGS, TENSORS, CARD = "model.json", "model.safetensors", "README.md"
FITTED: dict[str, type | tuple[type, ...]] = {
    "level_": str,
    "level_scores_": dict,
    "best_params_": dict,
    "history_": list,
    "val_score_": float,
    "temperature_": float,
    "confidence_": (list, type(None)),
    "n_features_in_": int,
    "smoothing_scores_": list,
    "feature_names_in_": (list, type(None)),
}
CONTENT = {"format", "version", "constructor", "fitted", "classes", "encoder", "network", "facts", "made", "sha256"}
NETWORK = ("model", "in_channels", "out_channels", "settings", "lam", "multilabel")
DTYPES = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_, "U": np.str_}  # of classes, by kind


class ModelError(ValueError):
    """Raised for a folder that does not hold a model this version can read."""


def save(classifier: BaseEstimator, folder: Path) -> Path:
    """Writes the three files and returns the folder; files of an earlier model are replaced."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"path must be a folder, got the file {folder}")
    members = classifier._members
    tensors = save_tensors({name: value.contiguous() for name, value in members.states.items()})
    arrays = {
        "smoothing_scores_": classifier.smoothing_scores_.astype(np.float64).tolist(),
        "feature_names_in_": list(getattr(classifier, "feature_names_in_", [])) or None,
    }
    constructor = classifier._fit_params | {"device": classifier.device}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "constructor": {name: _plain(value) for name, value in constructor.items()},
        "fitted": {name: arrays[name] if name in arrays else getattr(classifier, name) for name in FITTED},
        "classes": {"dtype": classifier.classes_.dtype.kind, "values": classifier.classes_.tolist()},
        "encoder": classifier.encoder_.to_json(),
        "network": {name: _plain(getattr(members, name)) for name in NETWORK},
        "facts": classifier.facts_,
        "made": {"date": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()},
    }
    content["sha256"] = _digest(json.loads(json.dumps(content, allow_nan=False)), tensors)
    with atomic_write(folder / TENSORS) as path:
        path.write_bytes(tensors)
    with atomic_write(folder / SETTINGS) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with atomic_write(folder / CARD) as path:
        path.write_text(model_card(content, classifier.encoder_.feature_names), encoding="utf-8")
    return folder


def load(folder: Path, kind: type[BaseEstimator]) -> BaseEstimator:
    """Reads a classifier of the class `kind`; raises a `ModelError` that names the file and what is wrong with it."""
    for name in (SETTINGS, TENSORS):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} must be a folder with {SETTINGS} and {TENSORS}, got none with {name}")
    tensors = (folder / TENSORS).read_bytes()
    content = _read_settings(folder / SETTINGS, tensors)
    with _explained(folder / SETTINGS):
        classifier = kind(**content["constructor"])
        classifier._fit_params = classifier.get_params(deep=False)
        _check_fitted(content["fitted"])
        for name, value in content["fitted"].items():
            if name != "feature_names_in_":
                setattr(classifier, name, value)
            elif value is not None:
                classifier.feature_names_in_ = np.array(value, dtype=object)
        classifier.smoothing_scores_ = np.array(classifier.smoothing_scores_, dtype=np.float32)
        classes = content["classes"]
        classifier.classes_ = np.array(classes["values"], dtype=DTYPES.get(classes["dtype"], object))
        classifier.encoder_ = FeatureEncoder.from_json(content["encoder"])
        classifier.facts_ = content["facts"]
        classifier._members = Members(**content["network"], states=load_tensors(tensors))
        _check_tensors(classifier._members)
    return classifier


def _digest(content: dict[str, Json], tensors: bytes) -> str:
    """The digest of both files, but for the digest itself."""
    known = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode() + tensors).hexdigest()


def _read_settings(path: Path, tensors: bytes) -> dict[str, Json]:
    """The content of `model.json` in the form of this version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} must be JSON, got: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelError(f"{path} must have the format {FORMAT!r}, got something else")
    version = content.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "update gfgn to read it" if newer else "train the model again with this version of gfgn"
        raise ModelError(f"{path} must be of version {VERSION}, got version {version!r}; {advice}")
    if content.get("sha256") != _digest(content, tensors):
        what = f"{TENSORS} or {SETTINGS} was changed or damaged, or they are of two models"
        raise ModelError(f"{path.parent} does not hold what was saved: {what}; train or copy the model again")
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


def _check_fitted(fitted: dict[str, Json]) -> None:
    if fitted.keys() != FITTED.keys():
        raise ModelError(f"{SETTINGS} must have the fitted {', '.join(FITTED)}, got {', '.join(fitted):.200}")
    for name, kinds in FITTED.items():
        if not isinstance(fitted[name], kinds):
            raise ModelError(f"{SETTINGS} must have a valid {name}, got {fitted[name]!r:.100}")
    curve = np.array(fitted["confidence_"] or np.zeros((2, 1)), dtype=np.float64)
    if not 0 < fitted["temperature_"] < math.inf or curve.ndim != 2 or len(curve) != 2 or not np.isfinite(curve).all():
        raise ModelError(f"{SETTINGS} must have a finite calibration, got something else")


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


def _plain(value: object) -> object:
    """A parameter as JSON has it; a random state other than an integer cannot be kept."""
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str | dict) else None
