"""The command line: the only place that prints, and the only one with typer, tabulate and tqdm."""
