"""The README is run: its migration, its commands, and every line of output it shows.

`python -m tests.test_readme` writes that output anew; read what changed.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from typer.main import get_command

from migrator.cli.commands import app
from migrator.rehearsal import fake
from migrator.snapshot import embedded
from migrator.snapshot.embedded import EmbeddedServer
from migrator.snapshot.rdb import library
from tests.servers import ROOT, Place, Run
from tests.support import in_process

README = ROOT / "README.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
# What depends on the machine and the day.
VARYING = re.compile(r"^  (?:time|memory) .*| at [0-9-]+ [0-9:]+ UTC|, [0-9.,]+ k?B$", re.MULTILINE)


def commands(block: str) -> list[str]:
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def write_module(directory: Path) -> str:
    """The README's own migration as a file, under the name it says; returns the code."""
    text = README.read_text("utf-8")
    name = re.search(r"`(migrations/\d{4}_\w+\.py)` says so", text)
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert name is not None
    assert code is not None
    (directory / name[1]).parent.mkdir()
    (directory / name[1]).write_text(code[1], "utf-8")
    return code[1]


def exit_codes() -> list[int]:
    """Of the last command of every console block: what the paragraph before it says, else 0."""
    text = README.read_text("utf-8")
    before = [text[: found.start()].rstrip().rpartition("\n\n")[2] for found in CONSOLE.finditer(text)]
    said = [re.search(r"exit code (\d+)", paragraph) for paragraph in before]
    return [int(found[1]) if found else 0 for found in said]


def played(url: str, directory: Path) -> Iterator[str]:
    """Every console block, run on this server in this directory."""
    write_module(directory)
    for block, exit in zip(CONSOLE.findall(README.read_text("utf-8")), exit_codes(), strict=True):
        *firsts, last = commands(block)
        exits = [(command, 0) for command in firsts] + [(last, exit)]
        yield "".join(f"$ {command}\n{_run(command, url, directory, wanted)}" for command, wanted in exits)


def _run(command: str, url: str, directory: Path, exit: int) -> str:
    words = shlex.split(command)
    if words[0] == "redis-cli":
        with redis.Redis.from_url(url) as client:
            client.execute_command(*words[1:])
        return ""
    assert words[0] == "migrator"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MIGRATOR_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == exit, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_its_migration_is_twenty_lines_at_most_without_the_blank_ones(tmp_path: Path) -> None:
    assert len([line for line in write_module(tmp_path).splitlines() if line]) <= 20


def test_what_it_shows_is_what_the_commands_print(server: Place, tmp_path: Path) -> None:
    shown = CONSOLE.findall(README.read_text("utf-8"))
    assert 32 in exit_codes(), "it says how a command ends that leaves a decision to a person"
    printed = list(played(server.url, tmp_path))
    fresh, stale = ([VARYING.sub("", block) for block in blocks] for blocks in (printed, shown))
    assert fresh == stale, "the README is out of date: python -m tests.test_readme"
    assert len(printed) >= 5
    assert server.raw.zscore("shop:riga:seen-by-time", "alan") == 1759385900.0


def test_its_adapter_does_what_it_says_in_every_phase_of_the_deploy_it_describes(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_module(tmp_path)
    text = README.read_text("utf-8").split("## An application that keeps running")[1]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    steps = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert steps is not None
    assert code[1].count("\n") <= 7  # five lines, and what is imported
    adapter = code[1].replace('"migrations"', repr(str(tmp_path / "migrations")))
    lines = [line for line in steps[1].splitlines() if not line.startswith("#")]
    assert len(lines) == 6
    server.raw.hset("shop:riga:seen", mapping={"ada": 1, "grace": 2})
    for line in lines:
        words = shlex.split(line)
        done = in_process(*words[1:], url=server.url)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        exec(adapter, {"url": server.url})
    assert server.raw.zscore("shop:riga:seen-by-time", "ada") == 1759386000.0
    assert not server.raw.exists("shop:riga:seen")


def test_an_old_application_may_write_until_the_stop_and_nothing_is_lost(
    server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_module(tmp_path)
    server.raw.hset("shop:riga:seen", mapping={"ada": 1, "grace": 2, "alan": 3})
    assert in_process("apply", "1", url=server.url).returncode == 0

    server.raw.hset("shop:riga:seen", mapping={"ada": 11, "edsger": 4})
    server.raw.hdel("shop:riga:seen", "grace")
    words = ("apply", "1", "--through", "contract", "--backup", "b", "--yes")
    assert in_process(*words, url=server.url).returncode == 0
    scores = {user: server.raw.zscore("shop:riga:seen-by-time", user) for user in ("ada", "alan", "edsger", "grace")}
    assert scores == {"ada": 11.0, "alan": 3.0, "edsger": 4.0, "grace": None}


def test_its_recipe_for_ci_has_ten_lines_and_runs(run_migrator: Run, tmp_path: Path) -> None:
    write_module(tmp_path)
    [recipe] = re.findall(r"```yaml\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert recipe.count("\n") <= 10
    [line] = re.findall(r"run: (migrator .*)", recipe)
    words = shlex.split(line)[1:]
    snapshot = words[words.index("--snapshot") + 1]
    record = '{"db":0,"key":"shop:riga:seen","type":"hash","expires_at":null,"value":[["ada","VALUE"]],"part":0}'
    for value, exit in (("1759385730", 0), ("yesterday", 32)):
        (tmp_path / snapshot).write_bytes(gzip.compress(record.replace("VALUE", value).encode() + b"\n"))
        done = run_migrator(*words, url="redis://127.0.0.1:1/0", cwd=tmp_path)
        assert done.returncode == exit, done.stdout + done.stderr
    assert "::error file=migrations/0001_seen_by_time.py,title=0001_seen_by_time%3A cannot be mapped::" in done.stdout
    assert (tmp_path / "report.xml").is_file()


@pytest.mark.parametrize("text", [README.read_text("utf-8"), embedded.INSTALL, fake.INSTALL, library.INSTALL])
def test_nothing_is_installed_by_a_name_that_is_somebody_elses_on_a_package_index(text: str) -> None:
    warned = "`pip install migrator` finds there is somebody else's"
    asked = re.findall(r"pip install '?([^'\n]+)", text.replace(warned, ""))
    assert asked
    assert [one for one in asked if re.match(r"\.|migrator(\[\w+\])? @ git\+", one) is None] == []
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert {extra for one in asked for extra in re.findall(r"\[(\w+)\]", one)} <= set(extras)


def test_its_table_names_every_command() -> None:
    section = README.read_text("utf-8").split("## Commands")[1].split("\n| exit code")[0]
    named = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert named == set(get_command(app).commands)  # type: ignore[attr-defined]


def test_its_table_names_every_exit_code() -> None:
    from migrator import errors

    section = README.read_text("utf-8").split("| exit code")[1].split("\n## ")[0]
    named = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE) for code in row.split(",")}
    known = {thing.exit_code for thing in vars(errors).values() if hasattr(thing, "exit_code")}
    assert named == known | {0, 10, 130, 143}


def test_its_links_lead_somewhere() -> None:
    text = README.read_text("utf-8")
    links, places = re.findall(r"\]\(([^)#]+)\)", text), set(re.findall(r"\]\(#([^)]+)\)", text))
    assert links
    for link in links:
        assert (ROOT / link).is_file(), link
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert places <= headings


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"^make (\w+)", README.read_text("utf-8"), re.MULTILINE))
    assert "test" in targets
    assert targets <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def test_contributing_lists_the_layers_that_are_enforced() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    [enforced] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    [block] = re.findall(r"```\n(cli\n.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    listed = [re.split(r"\s{2,}", line)[0] for line in block.splitlines()]
    assert listed == [layer.strip("()") for layer in enforced]


def main() -> None:
    with EmbeddedServer() as place, tempfile.TemporaryDirectory() as directory:
        fresh = played(place.url, Path(directory))
        README.write_text(CONSOLE.sub(lambda _: f"```console\n{next(fresh)}```", README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
