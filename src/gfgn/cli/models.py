"""`gfgn models`: lists the models."""

from gfgn.cli.app import app, echo, print_table


@app.command()
def models() -> None:
    """List the models: name, paper, and options with their defaults; then the models without a network.

    Models of installed packages are listed too. Your own is named package.module:Class; it needs no registration.
    """
    from gfgn.nn.custom import entry_points
    from gfgn.nn.registry import MODELS, find_model
    from gfgn.train.catalog import CLASSICAL

    rows = []
    for name in (*MODELS, *entry_points()):
        entry = find_model(name)
        options = ", ".join(f"{option} {parameter.default}" for option, parameter in entry.parameters.items())
        rows.append((name, entry.reference, options))
    print_table(("name", "paper", "options"), rows)
    echo()
    print_table(
        ("without a network", "reference", "what it is"),
        [(name, model.reference, model.description) for name, model in CLASSICAL.items()],
    )
