"""Copies of a database: files that hold one, and a throw-away server that plays one."""
