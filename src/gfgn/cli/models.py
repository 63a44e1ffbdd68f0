"""`gfgn models`: lists the models."""

from gfgn.cli.app import app, print_table


@app.command()
def models() -> None:
    """List the models: name, paper, and options with their defaults."""
    from gfgn.nn.registry import MODELS

    rows = []
    for name, entry in MODELS.items():
        options = ", ".join(f"{option} {parameter.default}" for option, parameter in entry.parameters.items())
        rows.append((name, entry.reference, options))
    print_table(("name", "paper", "options"), rows)
