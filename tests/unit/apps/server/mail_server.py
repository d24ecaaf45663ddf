"""A real mail server in a process of its own: aiosmtpd, which takes mail and writes each as a line of JSON.

Run as `python mail_server.py PORT-FILE MAIL-FILE [CERTIFICATE KEY USER PASSWORD]`; with a certificate it wants STARTTLS and a login.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult


class Keep:
    """Takes everything but mail for `refused@…`, and for `later@…` at the first try."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.late: set[str] = set()

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802 - its name is aiosmtpd's
        if address.startswith("refused@"):
            return "550 nobody of that name"
        if address.startswith("later@") and address not in self.late:
            self.late.add(address)
            return "451 greylisted, come again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        mail = message_from_bytes(envelope.content, policy=policy.default)
        fields = {
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "headers": {name.lower(): str(value) for name, value in mail.items()},
            "text": mail.get_content(),
        }
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")
        return "250 taken"


def main(port_file: str, mail_file: str, *tls: str) -> None:
    options: dict[str, Any] = {}
    if tls:
        certificate, key, user, password = tls
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)

        def login(_server: Any, _session: Any, _envelope: Any, _mechanism: str, value: Any) -> AuthResult:
            fits = (value.login, value.password) == (user.encode(), password.encode())
            return AuthResult(success=fits, handled=False)

        options = {"tls_context": context, "require_starttls": True, "auth_required": True, "authenticator": login}
    server = Controller(Keep(Path(mail_file)), hostname="127.0.0.1", port=0, **options)
    # Its own start would ask itself at port 0.
    serving = server.loop.run_until_complete(server._create_server())
    port = serving.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    Path(port_file + ".new").write_text(str(port))
    Path(port_file + ".new").rename(port_file)
    threading.Thread(target=lambda: (sys.stdin.read(), server.loop.call_soon_threadsafe(server.loop.stop))).start()
    server.loop.run_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
