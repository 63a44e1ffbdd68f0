"""The command `gfgn`: one module per subcommand. Heavy imports happen inside the commands, so that `gfgn --help` is
fast."""

from gfgn.cli import advise, compare, datasets, models, predict, report, reproduce, train
from gfgn.cli.app import app, main

__all__ = ["advise", "app", "compare", "datasets", "main", "models", "predict", "report", "reproduce", "train"]
