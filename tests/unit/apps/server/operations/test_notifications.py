"""Notification channels are told of what waits and of alerts: by mail to a real mail server, by HTTP, and through Apprise."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.callback_listener import listen
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.smtplib.notification_channel import MailChannel
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.apps.config.notification_settings import NotificationChannelTable
from forestay.ports.errors import Permanent, Transient
from forestay.ports.operations.notification_channel import NotificationMessage
from forestay.services.operations.notifier import Notifier

WINDOW = 15 * 60_000
HOUR = 60 * 60_000
HELLO = NotificationMessage("ops.1", "[forestay] hello", "hello\n", {})


async def fail(server: RunningServer, tenant: str, many: int, subject: str = "ada") -> None:
    """So many more jobs that wait for a person."""
    ada = server.person("submitter", tenant=tenant, subject=subject)
    jobs = await submit(ada, *[{}] * many, max_attempts=1, when_exhausted="hold")
    pilot = await ScriptedPilot.register(server, tenant)
    for _ in range(many):
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1, log_tail="?")

    async def held() -> bool:
        incidents = (await ada.get("/v1/incidents", params={"state": "held", "limit": 1000})).json()["incidents"]
        return {incident["job"] for incident in incidents} >= set(jobs)

    await until(held, "all to wait")
    await server.refresh()


def telling(reconciler: ReconcilerComponents, clock: LaterClock | None = None) -> Notifier:
    assert reconciler.notification_channels is not None
    if clock is not None:
        reconciler.notification_channels.clock = clock
    return reconciler.notification_channels


async def test_the_first_is_told_at_once_and_a_flood_is_one_digest(server: RunningServer, tenant: str) -> None:
    async with listen() as listener:
        table = {"name": f"r-{tenant}", "kind": "webhook", "url": listener.url("/hook"), "tenants": [tenant]}
        async with (
            server.domain.reconciler(notification_channels=[table]) as reconciler,
            server.domain.reconciler(notification_channels=[table]) as two,
        ):
            clock = LaterClock()
            reconcilers = [telling(reconciler, clock), telling(two, clock)]

            async def look() -> None:
                await asyncio.gather(*(reconciler.look() for reconciler in reconcilers))

            await fail(server, tenant, 1)
            await look()
            (first,) = listener.seen
            assert first.body["subject"] == "[forestay] Attention needed: 1 failure, unknown of ada"
            assert first.headers["forestay-delivery"] == first.body["delivery"] == f"r-{tenant}.1"
            await fail(server, tenant, 4)
            await look()
            assert len(listener.seen) == 1, "the rest is gathered"
            clock.ahead += WINDOW
            await look()
            await look()
            assert [seen.body["count"] for seen in listener.seen] == [1, 4], "once, by one of the two reconcilers"
            (topic,) = listener.seen[1].body["topics"]
            assert (topic["tenant"], topic["kind"], topic["owner"]) == (tenant, "waits", "ada")
            assert sum(reconciler.sent for reconciler in reconcilers) == 2


async def test_where_the_audit_log_ends_is_told_every_hour(server: RunningServer, tenant: str) -> None:
    """To whom it says so alone; and what was told can be checked later."""
    async with listen() as archive, listen() as people:
        tables = [
            {
                "name": f"a-{tenant}",
                "kind": "webhook",
                "url": archive.url("/hook"),
                "tenants": [tenant],
                "what": ["audit"],
            },
            {"name": f"p-{tenant}", "kind": "webhook", "url": people.url("/hook"), "tenants": [tenant]},
        ]
        async with (
            server.domain.reconciler(notification_channels=tables) as reconciler,
            server.domain.reconciler(notification_channels=tables) as two,
        ):
            clock = LaterClock()
            clock.ahead = -clock.now() % HOUR  # the hour begins now
            reconcilers = [telling(reconciler, clock), telling(two, clock)]
            olga = server.person("operator", tenant=tenant, subject="olga")
            for number in range(2):
                stop = await olga.post("/v1/safeguards/stop", json={"reason": f"stop {number}"})
                assert stop.status_code == 200, stop.text
                await server.refresh()
                for _ in range(3):
                    await asyncio.gather(*(reconciler.look() for reconciler in reconcilers))
                    clock.ahead += HOUR // 4
                clock.ahead += HOUR // 4
    assert not people.seen
    assert [seen.body["subject"] for seen in archive.seen] == [f"[forestay] end of the audit log of {tenant}"] * 2
    log = (await olga.get("/v1/audit")).json()["entries"]
    for seen, entry in zip(archive.seen, log, strict=True):
        (topic,) = seen.body["topics"]
        assert topic["notifications"][0].startswith(f"{entry['number']}:{entry['hash']}, check it with ")


async def test_one_that_is_away_is_told_later_with_the_same_delivery(local: RunningServer, tenant: str) -> None:
    async with listen(503, "cut", 200) as listener:
        table = {"name": f"r-{tenant}", "kind": "webhook", "url": listener.url("/hook"), "tenants": [tenant]}
        async with local.domain.reconciler(notification_channels=[table]) as reconciler:
            clock = LaterClock()
            telling_one = telling(reconciler, clock)
            await fail(local, tenant, 1)
            await telling_one.look()
            await telling_one.look()
            assert (len(listener.seen), telling_one.failed) == (1, 1), "it waits before it tries again"
            for ahead in (1000, 2000):
                clock.ahead += ahead
                await telling_one.look()
            assert [delivered.body["delivery"] for delivered in listener.seen] == [f"r-{tenant}.1"] * 3
            assert telling_one.sent == 1
            clock.ahead += 4000
            await telling_one.look()
            assert len(listener.seen) == 3


async def test_a_reconciler_that_died_after_sending_leaves_a_repeat_that_can_be_told(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listen() as listener:
        table = {"name": f"r-{tenant}", "kind": "webhook", "url": listener.url("/hook"), "tenants": [tenant]}
        async with (
            local.domain.reconciler(notification_channels=[table]) as dying,
            local.domain.reconciler(notification_channels=[table]) as other,
        ):
            await fail(local, tenant, 1)

            async def died(*_: object, **__: object) -> None:
                raise Transient("the process is gone")

            monkeypatch.setattr("forestay.services.operations.notifier.update_document", died)
            with pytest.raises(Transient):
                await telling(dying).look()
            monkeypatch.undo()
            clock = LaterClock()
            successor = telling(other, clock)
            await successor.look()
            assert len(listener.seen) == 1, "it may still be under way"
            clock.ahead += 61_000
            await successor.look()
            assert [delivered.body["delivery"] for delivered in listener.seen] == [f"r-{tenant}.1"] * 2


async def test_each_hears_of_their_own(local: RunningServer, tenant: str) -> None:
    stranger = f"{tenant}-x"
    async with listen() as mine, listen() as graces, listen() as alerts:
        tables = [
            {"name": f"a-{tenant}", "kind": "webhook", "url": mine.url(), "tenants": [tenant], "owners": ["ada"]},
            {"name": f"b-{tenant}", "kind": "webhook", "url": graces.url(), "tenants": [tenant], "owners": ["grace"]},
            {"name": f"c-{tenant}", "kind": "webhook", "url": alerts.url(), "tenants": [tenant], "what": ["alert"]},
        ]
        async with local.domain.reconciler(notification_channels=tables) as reconciler:
            await fail(local, stranger, 1)
            await fail(local, tenant, 2, "ada")
            ada = local.person("submitter", tenant=tenant)
            await submit(ada, {"name": "nightly", "labels": {"forestay/forgotten": "true"}}, max_attempts=1)
            pilot = await ScriptedPilot.register(local, tenant)
            await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1)
            await local.refresh()
            await reconciler.forgotten.look()
            await local.refresh()
            await telling(reconciler).look()
            (topics,) = [delivered.body["topics"] for delivered in mine.seen]
            assert {(topic["kind"], topic["cause"], topic["count"]) for topic in topics} == {
                ("waits", "unknown", 2),
                ("alert", "forgotten-job-failed", 1),
            }
            assert not graces.seen
            (delivered,) = alerts.seen
            assert "nightly of ada is failed" in delivered.body["text"]


async def test_a_webhook_gets_its_token_and_nobody_else_does(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0p-s3cret")
    async with listen(401, 200) as listener:
        table = {"name": f"r-{tenant}", "kind": "webhook", "url": listener.url(), "tenants": [tenant]}
        table["secret"] = "env:HOOK_TOKEN"
        async with local.domain.reconciler(notification_channels=[table]) as reconciler:
            clock = LaterClock()
            await fail(local, tenant, 1)
            await telling(reconciler, clock).look()
            clock.ahead += 2000
            await telling(reconciler).look()
            assert [delivered.headers["authorization"] for delivered in listener.seen] == ["Bearer t0p-s3cret"] * 2
            documents = await reconciler.components.documents.find("notifications")
            assert "s3cret" not in json.dumps([stored_document.document.body for stored_document in documents])
            assert "s3cret" not in "".join(capsys.readouterr())


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # Apprise asks for it
async def test_chats_are_told_through_apprise(local: RunningServer, tenant: str, tmp_path: Path) -> None:
    addresses = tmp_path / "addresses"
    async with listen() as first, listen(500, 200) as second:
        addresses.write_text(f"json://127.0.0.1:{first.port}/chat\n")
        table = {"name": f"r-{tenant}", "kind": "apprise", "secret": f"file:{addresses}", "tenants": [tenant]}
        async with local.domain.reconciler(notification_channels=[table]) as reconciler:
            clock = LaterClock()
            await fail(local, tenant, 1)
            await telling(reconciler, clock).look()
            (delivered,) = first.seen
            assert delivered.body["title"] == "[forestay] Attention needed: 1 failure, unknown of ada"
            assert "forestay inbox" in delivered.body["message"]
            addresses.write_text(f"json://127.0.0.1:{second.port}/chat\n")
            await fail(local, tenant, 1)
            clock.ahead += WINDOW
            await telling(reconciler).look()
            assert telling(reconciler).failed == 1
            clock.ahead += 2000
            await telling(reconciler).look()
            assert len(second.seen) == 2
            assert telling(reconciler).sent == 2


class Mails:
    """The mails that a mail server has taken."""

    def __init__(self, port: int, file: Path) -> None:
        self.port = port
        self.file = file

    @property
    def taken(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


@contextmanager
def mail_server(folder: Path, *tls: str) -> Iterator[Mails]:
    port, mails = folder / "port", folder / "mails"
    script = Path(__file__).parents[1] / "mail_server.py"
    with subprocess.Popen([sys.executable, script, port, mails, *tls], stdin=subprocess.PIPE) as process:
        while not port.exists():
            assert process.poll() is None, "the mail server did not start"
        try:
            yield Mails(int(port.read_text()), mails)
        finally:
            process.terminate()


@pytest.fixture
async def mails(tmp_path: Path) -> AsyncIterator[Mails]:
    with mail_server(tmp_path) as mails:
        yield mails


async def test_mail_is_sent_once_and_names_itself(local: RunningServer, tenant: str, mails: Mails) -> None:
    table = {
        "name": f"r-{tenant}", "kind": "mail", "url": f"smtp://127.0.0.1:{mails.port}", "tenants": [tenant],
        "sender": "forestay@example.org", "to": ["ops@example.org", "later@example.org"],
    }  # fmt: skip
    async with local.domain.reconciler(notification_channels=[table]) as reconciler:
        await fail(local, tenant, 3)
        await telling(reconciler).look()
        (mail,) = mails.taken
        assert mail["headers"]["subject"] == "[forestay] Attention needed: 3 failures, unknown of ada"
        assert mail["headers"]["message-id"] == f"<forestay.r-{tenant}.1@example.org>"
        assert mail["headers"]["auto-submitted"] == "auto-generated"
        assert mail["headers"]["to"] == "ops@example.org, later@example.org"
        assert mail["to"] == ["ops@example.org"]
        assert mail["text"].count("  - job ") == 3
        assert telling(reconciler).dropped == 1, "who has it is not sent it again for the sake of another"


async def test_mail_that_nobody_takes_now_is_sent_later(mails: Mails, tmp_path: Path) -> None:
    server = f"smtp://127.0.0.1:{mails.port}"
    later = MailChannel(server, "forestay@example.org", ("later@example.org",))
    with pytest.raises(Transient, match="rejected all recipients: later@"):
        await later.tell(HELLO)
    await later.tell(HELLO)
    with pytest.raises(Permanent, match="rejected mail for refused@"):
        await MailChannel(server, "h@example.org", ("refused@example.org", "ops@example.org")).tell(HELLO)
    assert [record["to"] for record in mails.taken] == [["later@example.org"], ["ops@example.org"]]
    with pytest.raises(Transient, match="did not accept mail: ConnectionRefusedError"):
        await MailChannel("smtp://127.0.0.1:9", "h@example.org", ("ops@example.org",)).tell(HELLO)


async def test_a_password_goes_over_tls_to_a_server_that_proves_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(  # noqa: ASYNC221 - nothing else runs yet
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    with mail_server(tmp_path, str(certificate), str(key), "ada", "t0p-s3cret") as mails:
        server = f"starttls://localhost:{mails.port}"
        right = MailChannel(server, "h@example.org", ("ops@example.org",), "ada", lambda: "t0p-s3cret")
        with pytest.raises(Transient, match="SSLCertVerificationError"):
            await right.tell(HELLO)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await right.tell(HELLO)
        (mail,) = mails.taken
        assert mail["tls"] is True
        with pytest.raises(Transient, match="answered 535") as wrong:
            await MailChannel(server, "h@example.org", ("o@example.org",), "ada", lambda: "guess").tell(HELLO)
        assert "guess" not in str(wrong.value)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"kind": "webhook"}, "needs a url"),
        ({"kind": "webhook", "url": "https://user:pw@host/"}, "should match pattern"),
        ({"kind": "mail", "url": "smtp://host"}, "sender and to"),
        (
            {"kind": "mail", "url": "smtp://host", "sender": "a@b", "to": ["c@d"], "user": "u", "secret": "env:X"},
            "requires TLS",
        ),
        ({"kind": "mail", "url": "smtps://host", "sender": "a@b", "to": ["c@d"], "user": "u"}, "both user and secret"),
        ({"kind": "mail", "url": "smtps://h", "sender": "a@b\nBcc: c@d", "to": ["c@d"]}, "should match pattern"),
        ({"kind": "apprise", "url": "https://token@chat"}, "should match pattern"),
        ({"kind": "apprise"}, "are secrets"),
        ({"kind": "webhook", "url": "https://h", "secret": "t0p"}, "should match pattern"),
    ],
)
def test_what_is_wrong_with_a_notification_channel_is_said(table: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        NotificationChannelTable.model_validate({"name": "r"} | table)


async def test_two_notification_channels_have_two_names(tmp_path: Path) -> None:
    table = {"name": "r", "kind": "webhook", "url": "https://h"}
    async with store_room("sqlite", tmp_path) as url:
        with pytest.raises(ValidationError, match="several notification channels have the name r"):
            Domain(url, tmp_path).settings(notification_channels=[table, table])


async def test_a_notification_channel_is_tried_by_hand(tmp_path: Path) -> None:
    """As an operator does it, with the settings of a reconciler."""
    async with listen(200, 403) as listener:
        (tmp_path / "token").write_text("s3cret")
        file = tmp_path / "forestay.toml"
        file.write_text(
            f'[[notification_channels]]\nname = "ops"\nkind = "webhook"\nurl = "{listener.url("/hook")}"\nsecret = "file:{tmp_path}/token"\n'
        )

        async def forestay(*words: str) -> tuple[int | None, str, str]:
            entry = [sys.executable, "-c", "from forestay.apps.entry import main; main()"]
            started = await asyncio.create_subprocess_exec(
                *entry, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=os.environ | {"FORESTAY_CONFIG": str(file), "FORESTAY_STATE": str(tmp_path)},
            )  # fmt: skip
            out, err = await started.communicate()
            return started.returncode, out.decode(), err.decode()

        code, out, err = await forestay("notifications", "test", "ops")
        (seen,) = listener.seen
        assert (code, err) == (0, "")
        assert str(seen.body["delivery"]) in out
        assert "Nothing happened" in str(seen.body["text"])
        assert seen.headers["authorization"] == "Bearer s3cret"
        code, out, err = await forestay("notifications", "test", "ops", "--json")
        assert (code, json.loads(out)["accepted"]) == (6, False)
        assert "answered 403" in err
        assert "s3cret" not in out + err
        code, _, err = await forestay("notifications", "test", "pager")
        assert (code, err) == (1, "forestay: there is no notification channel pager; known: ops\n")


async def test_nobody_is_told_of_an_error_that_may_wait_until_it_regresses(server: RunningServer, tenant: str) -> None:
    async with listen() as listener:
        table = {"name": f"q-{tenant}", "kind": "webhook", "url": listener.url("/hook"), "tenants": [tenant]}
        async with server.domain.reconciler(notification_channels=[table]) as reconciler:
            notifier = telling(reconciler)
            olga = server.person("operator", tenant=tenant, subject="olga")
            await fail(server, tenant, 1)
            (group,) = (await olga.get("/v1/inbox")).json()["groups"]
            place = f"/v1/errors/{group['fingerprint']}/triage"
            await olga.post(place, json={"act": "snooze", "seconds": 3600})
            await notifier.look()
            assert listener.seen == []
            await olga.post(place, json={"act": "resolve"})
            await notifier.look()
            assert listener.seen == [], "it has not happened since"
            await fail(server, tenant, 1)
            await notifier.look()
            assert [seen.body["count"] for seen in listener.seen] == [2], "the regression, with what still waits"
