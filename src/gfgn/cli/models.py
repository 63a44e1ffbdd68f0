"""`gfgn models`: lists the models."""

from gfgn.cli.app import app, echo, print_table


@app.command()
def models() -> None:
    """List the models: name, paper, and options with their defaults; then the models without a network."""
    from gfgn.nn.registry import MODELS
    from gfgn.train.classical import CLASSICAL

    rows = []
    for name, entry in MODELS.items():
        options = ", ".join(f"{option} {parameter.default}" for option, parameter in entry.parameters.items())
        rows.append((name, entry.reference, options))
    print_table(("name", "paper", "options"), rows)
    echo()
    print_table(
        ("without a network", "reference", "what it is"),
        [(name, model.reference, model.description) for name, model in CLASSICAL.items()],
    )
