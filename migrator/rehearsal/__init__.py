"""Migrations tried on a copy of the data: the engine's own commands on a throw-away server, and what came of it.

Above the engine, as it drives its commands; the engine knows nothing of it.
"""
