"""A rehearsal: the migrations there, back and there again, while the tool is killed, applications write, and the server
is lost; then every record is looked at."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import IO, Any

from migrator.client import Client, connect
from migrator.engine.guards import share_keys
from migrator.engine.observe import Stop
from migrator.engine.run import Options
from migrator.engine.session import Session
from migrator.errors import MigratorError, RefusedError
from migrator.ledger import Entry, Ledger
from migrator.models import RehearsalReport, Stopped
from migrator.moves.loader import Module, Modules
from migrator.phases import Phase
from migrator.rehearsal.hunt import Hunter, environment
from migrator.rehearsal.judge import Judge
from migrator.rehearsal.scratch import PATIENCE, Source, copied, version
from migrator.rehearsal.stage import Stage, stage
from migrator.rehearsal.standing import check_ledger, half_way
from migrator.rehearsal.writers import Account, Settings
from migrator.snapshot import backup
from migrator.snapshot.embedded import EmbeddedServer
from migrator.snapshot.load import load_lines
from migrator.snapshot.places import Places

_WRITER_SECONDS = 60.0
_QUARANTINED = 32


@dataclass(frozen=True)
class Hardship:
    """How hard it is to be: seconds between two kills on average (0: none), processes that write, a failover."""

    every: float = 0.5
    writers: int = 4
    failover: bool = False


class Rehearsal:
    """One rehearsal of the migrations that are pending in a snapshot."""

    def __init__(self, source: Source, modules: Modules, hardship: Hardship) -> None:
        self._source, self._modules, self._hardship = source, modules, hardship
        self._names, self._observer, self._stop = source.names, source.observer, source.stop
        self._commands: list[str] = []
        self._stopped: Stopped | None = None
        self._rejected = self._failovers = 0
        self._notes: list[str] = []

    def play(self, ids: Sequence[str], at: Mapping[str, Phase]) -> RehearsalReport:
        """Runs it. `at` says where a migration stands that the snapshot's ledger does not know. Raises what loading a
        snapshot raises, what `plan` does for a ledger that does not fit, and RefusedError where nothing can be
        rehearsed."""
        begun = time.monotonic()
        with stage(failover=self._hardship.failover) as there:
            client = connect(there.url, patience=PATIENCE, before_retry=self._stop.check)
            server = version(client)
            client, loaded, _ = self._source.fill(client, self._modules)
            self._notes += loaded.notes
            url = there.url.replace("?db=0", f"?db={client.db}")
            chosen = self._pending(client, ids, at)
            assert there.primary.home is not None
            with copied(client, there.primary.home, self._stop.check) as before:
                own = environment(url, self._modules.directory)
                hunter = Hunter(client, self._names, self._modules, own, there.home,
                                self._hardship.every, self._stop.check)  # fmt: skip
                accounts = self._told(there, hunter, url, chosen)
                with self._adopted(client, there.home / "backup", chosen) as adopted:
                    judge = self._judged(before, client, adopted, chosen, accounts)
        report = self._report(loaded, server, hunter, accounts, judge)
        return report.model_copy(update={"seconds": round(time.monotonic() - begun, 1)})

    def _pending(self, client: Client, ids: Sequence[str], at: Mapping[str, Phase]) -> list[Module]:
        session = Session(client, self._names, self._modules, options=Options(), stop=self._stop)
        check_ledger(session, at)
        known, chosen = session.entries(), []
        for module in self._modules.select(ids):
            entry = known.get(module.id) or Entry(id=module.id)
            if remark := half_way(module, entry):
                raise RefusedError(remark.text, next=remark.next)
            if entry.phase != "contracted":
                chosen.append(module)
        if not chosen:
            raise RefusedError("every migration is contracted in this snapshot: there is nothing to rehearse",
                               next="see where they stand with: migrator snapshot info FILE")  # fmt: skip
        _refuse_shared(chosen)
        return chosen

    # The story.

    def _told(self, there: Stage, hunter: Hunter, url: str, chosen: Sequence[Module]) -> list[Account]:
        if not self._command(hunter, "init"):
            return []
        with self._writing(url, hunter.environment, chosen) as crew:
            done = self._there_and_back(there, hunter, chosen)
            self._observer.say("the whole way" if done else "stopped")
            return crew.finish()

    def _there_and_back(self, there: Stage, hunter: Hunter, chosen: Sequence[Module]) -> bool:
        backup = ["--backup", str(there.home / "backup"), "--yes"]
        free = [*backup, "--ignore-load"]  # there is nobody to be spared
        once = self._failing_over(there) if there.ready else None
        # One after the other: the next one may wait until this one is contracted.
        steps: list[tuple[Callable[[], None] | None, list[str]]] = []
        for module in chosen:
            steps.append((None, ["apply", module.number, "--through", "verify", *free]))
            steps.append((once, ["apply", module.number, "--through", "contract", *free]))
            once = None
        steps += [(None, [*_back(module), *backup]) for module in reversed(chosen)]
        steps += [(None, ["apply", module.number, "--through", "contract", *free]) for module in chosen]
        return all(self._command(hunter, *words, begun=begun) for begun, words in steps)

    def _failing_over(self, there: Stage) -> Callable[[], None]:
        def fail_over() -> None:
            there.fail_over()
            self._failovers += 1
            self._observer.say("the server is lost; its replica has taken its place")

        return fail_over

    def _command(self, hunter: Hunter, *words: str, begun: Callable[[], None] | None = None) -> bool:
        """One command to its end; what cannot be mapped is accepted on the way."""
        told = f"migrator {' '.join(word for word in words if '/' not in word and word != '--backup')}"
        self._commands.append(told)
        self._observer.say(told)
        while True:
            exit, result = hunter.run(*words, begun=begun)
            if exit != _QUARANTINED:
                break
            begun = None
            self._accept(hunter, result["stopped"]["id"])
        if exit == 0:
            return True
        stop = result.get("stopped") or {}
        error = result.get("error") or {}
        self._stopped = Stopped(
            id=stop.get("id", ""), phase=stop.get("phase", ""), exit=exit,
            reason=stop.get("reason") or error.get("message", ""), next=stop.get("next") or error.get("next", ""),
        )  # fmt: skip
        return False

    def _accept(self, hunter: Hunter, id: str) -> None:
        _, listed = hunter.run("quarantine", "list", id)
        self._rejected += sum(not record["accepted"] for record in listed["records"])
        hunter.run("quarantine", "accept", id, "--all")

    # The applications.

    @contextmanager
    def _writing(self, url: str, environment: dict[str, str], chosen: Sequence[Module]) -> Iterator[_Crew]:
        # What has no inverse goes back by a restore, which discards what was written since.
        ids = tuple(module.id for module in chosen if module.migration.invertible)
        self._notes += [f"nobody writes to the records of {module.id}: it has no inverse" for module in chosen
                        if not module.migration.invertible]  # fmt: skip
        crew = _Crew(self._stop)
        try:
            for number in range(self._hardship.writers if ids else 0):
                crew.start(
                    Settings(url=url, migrations=environment["MIGRATOR_MIGRATIONS"], ids=ids, number=number,
                             namespace=self._names.namespace, writers=self._hardship.writers),
                    environment,
                )  # fmt: skip
            crew.wait_ready()
            yield crew
        finally:
            crew.end()

    # The end.

    @contextmanager
    def _adopted(self, client: Client, base: Path, chosen: Sequence[Module]) -> Iterator[Client | None]:
        """What was under the names of targets before, as the last backups of it have it, on a server of its own."""
        entries = {} if self._stopped else Ledger(client, self._names).entries() or {}
        saved = [base / Path(name).name for module in chosen if module.id in entries
                 and (name := entries[module.id].adopted)]  # fmt: skip
        if not saved:
            yield None
            return
        with EmbeddedServer(tcp=False) as server:
            places = Places(connect(server.socket_url, patience=PATIENCE))
            for path in saved:
                load_lines(backup.lines(path), places.first, empty=True)
            yield places.of(client.db)

    def _judged(
        self, before: Client, after: Client, adopted: Client | None, chosen: Sequence[Module],
        accounts: Sequence[Account],
    ) -> Judge:  # fmt: skip
        told = [told for account in accounts for told in account.told]
        judge = Judge(before, after, self._names, chosen, told, adopted)
        if self._stopped is None:
            judge.all()
        for account in accounts:
            for where, why in account.wrong:
                judge.differ(base64.b64decode(where), None, "different", f"while it was under way: {why}")
        return judge

    def _report(
        self, loaded: Any, server: str, hunter: Hunter, accounts: Sequence[Account], judge: Judge
    ) -> RehearsalReport:
        writes: Counter[str] = Counter()
        for account in accounts:
            writes.update(account.done)
        counts, stopped = judge.counts, self._stopped
        wrong = any(counts.values())
        exit = stopped.exit if stopped and stopped.exit in (3, 2, 60, 62, 11, 12) else (
            30 if wrong else stopped.exit if stopped else 32 if self._rejected else 0)  # fmt: skip
        return RehearsalReport(
            file=str(self._source.path), server=server, loaded=loaded, commands=tuple(self._commands),
            processes=hunter.processes, kills=dict(hunter.kills), failovers=self._failovers,
            writers=self._hardship.writers, writes=dict(sorted(writes.items())), unwritten=unwritten(accounts),
            compared=judge.compared, lost=counts["lost"], extra=counts["extra"], different=counts["different"],
            rejected=self._rejected, differences=judge.differences.listed(), stopped=stopped,
            notes=tuple(self._notes), exit=exit,
        )  # fmt: skip


def unwritten(accounts: Sequence[Account]) -> tuple[str, ...]:
    """What no writer wrote to: of a few records one may have had none."""
    said = dict.fromkeys(text for account in accounts for text in account.unwritten)
    return tuple(text for text in said if all(text in account.unwritten for account in accounts))


def _refuse_shared(chosen: Sequence[Module]) -> None:
    """Raises RefusedError where two are about the same keys: each family is judged alone, and what the first one left
    for the second would be called lost."""
    for one, other in combinations(chosen, 2):
        if share_keys(one, other):
            raise RefusedError(
                f"{one.id} and {other.id} are about the same keys: only one of them is rehearsed at a time",
                next=f"name {one.number} alone, and {other.number} once that is contracted where the snapshot is "
                "taken; plan --snapshot tries both",
            )


def _back(module: Module) -> list[str]:
    if module.migration.invertible:
        return ["rollback", module.number, "--to", "pending"]
    return ["restore", module.number, "--discard-later-writes"]


@dataclass
class _Crew:
    """The processes that write."""

    stop: Stop
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, settings: Settings, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "migrator.rehearsal.writers"]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        self._send(process, settings.model_dump_json())

    def _send(self, process: subprocess.Popen[str], line: str) -> None:
        pipe = self._pipe(process.stdin)
        pipe.write(line + "\n")
        pipe.flush()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def wait_ready(self) -> None:
        for process in self.processes:
            if self._pipe(process.stdout).readline() != "ready\n":
                raise MigratorError(f"a writer could not start: {self._last_words(process)}")
            self.stop.check()
        for process in self.processes:
            self._send(process, "go")

    def finish(self) -> list[Account]:
        """What each did. Raises MigratorError for one that did not come to its end."""
        for process in self.processes:
            self._pipe(process.stdin).close()
            process.stdin = None
        accounts: list[Account] = []
        for process in self.processes:
            out, _ = process.communicate(timeout=_WRITER_SECONDS)
            account = Account.model_validate_json(out) if out else Account(failed="it ended early")
            if account.failed:
                raise MigratorError(f"a writer failed: {account.failed}", next="please report this")
            accounts.append(account)
        return accounts

    def _last_words(self, process: subprocess.Popen[str]) -> str:
        process.kill()
        _, err = process.communicate()
        return err.strip().splitlines()[-1] if err.strip() else "it said nothing"

    def end(self) -> None:
        for process in self.processes:
            with process:  # closes its pipes
                process.kill()
