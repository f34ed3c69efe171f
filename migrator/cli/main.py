"""The `migrator` command: parses, runs one command, and turns every error into words and an exit code."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from types import FrameType
from typing import Any

import typer

from migrator.cli.commands import app
from migrator.cli.options import Common, common, split
from migrator.errors import Interrupted, InterruptedRunError, MigratorError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    # Nearly all that is made is gone with its batch: looking for cycles after every 700 is a twentieth of a backfill.
    gc.set_threshold(50_000, 50, 50)
    words = list(sys.argv[1:] if argv is None else argv)
    # Before the options are parsed, so that an error in them is already told in the form that was asked for.
    settings = Common(format="json" if _wants_json(words) else "text")
    try:
        with _signals():
            found, rest = split(words)
            settings = common(found)
            return _call(rest, settings)
    except MigratorError as error:
        return report(error, settings)
    except Interrupted as heard:
        return report(InterruptedRunError(heard.signum, writes=False), settings)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); what was done is done.
        sys.stderr.close()
        return 1
    except Exception as error:
        return report(_unexpected(error), settings)


@contextmanager
def _signals() -> Iterator[None]:
    """Signals while no command has said how they are to be heard."""

    def heard(signum: int, _: FrameType | None) -> None:
        raise Interrupted(signum)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _call(words: list[str], settings: Common) -> int:
    if not words or (len(words) == 1 and words[0] in {group.name for group in app.registered_groups}):
        words = [*words, "--help"]
    try:
        result = _commands().main(args=words, prog_name="migrator", standalone_mode=False, obj=settings)
    except Exception as error:
        told = getattr(error, "format_message", None)
        if told is None:
            raise
        text = " ".join(told().replace("Value error, ", "").split())
        raise UsageError(text, next=f"see: migrator {_command(words)}--help") from None
    return result if isinstance(result, int) else 0


@cache
def _commands() -> Any:
    """All commands and their options, worked out of the functions' signatures: that takes a while, so once."""
    return typer.main.get_command(app)


def _command(words: list[str]) -> str:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {group.name for group in app.registered_groups if group.name}
    groups = {group.name for group in app.registered_groups}
    depth = 2 if words[0] in groups and len(words) > 1 and not words[1].startswith("-") else 1
    return " ".join(words[:depth]) + " " if words[0] in known else ""


def _wants_json(words: Sequence[str]) -> bool:
    return "--format=json" in words or any(a == "--format" and b == "json" for a, b in pairwise(words))


def _unexpected(error: Exception) -> MigratorError:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].name}:{frames[-1].lineno}" if frames else ""
    # Not the message alone: it may come from a library and say nothing of where.
    return MigratorError(
        f"{type(error).__name__}{where}: {error}", next="please report this; where things stand: migrator status"
    )


def report(error: MigratorError, settings: Common) -> int:
    """Prints an error and returns its exit code. A password in the URL never gets out, whoever wrote the message."""
    code = error.exit if isinstance(error, InterruptedRunError) else error.exit_code
    message, following = _clean(error.message, settings), _clean(error.next, settings)
    if settings.format == "json":
        from migrator.models import ErrorBody, ErrorResult

        body = ErrorBody(code=error.code, exit=code, message=message, next=following)
        print(ErrorResult(error=body).model_dump_json(indent=2))
    else:
        print(f"error: {message}", file=sys.stderr)
        if following:
            print(f"next:  {following}", file=sys.stderr)
    return code


def _clean(text: str, settings: Common) -> str:
    from urllib.parse import unquote, urlsplit

    login = settings.url.rpartition("@")[0].partition("://")[2]
    secrets = {login.partition(":")[2], unquote(login.partition(":")[2])}
    try:
        query = urlsplit(settings.url).query
    except ValueError:
        query = ""
    secrets |= {part.partition("=")[2] for part in query.split("&") if part.startswith("password=")}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


if __name__ == "__main__":
    sys.exit(main())
