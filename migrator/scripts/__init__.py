"""The Lua scripts, one file each; every header names the keys, the arguments and the reply."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script with the library it stands on; `sha` is what EVALSHA takes."""

    name: str
    text: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script `<name>.lua`. A first line `-- uses: a b` puts those library files in front of it."""
    text = _read(name)
    first = text.splitlines()[0]
    uses = first.removeprefix("-- uses: ").split() if first.startswith("-- uses: ") else []
    whole = "\n".join([_read(f"lib_{lib}") for lib in uses] + [text]).encode()
    return Script(name, whole, hashlib.sha1(whole).hexdigest().encode())


@cache
def _read(name: str) -> str:
    return (files(__name__) / f"{name}.lua").read_text()
