"""`forestay notifications`: the notification channels, and a test notification through one."""

from __future__ import annotations

import secrets

from forestay.adapters.system.clock import SystemClock
from forestay.apps.compose.receivers import make_receiver
from forestay.apps.config.receiver_settings import ReceiverTable
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.incidents.notices import Gathered, Letter, NoticeKind, Topic
from forestay.ports.errors import NotFound
from forestay.services.operations.tell_receivers import message_of

WORDS = "Somebody tries whether this receiver is reached. Nothing has happened, and nothing is to be done."


def receiver_named(settings: Settings, name: str) -> ReceiverTable:
    """`NotFound` says which there are."""
    found = {one.name: one for one in settings.receivers}
    if name not in found:
        known = f"there are {', '.join(sorted(found))}" if found else "the settings have no [[receivers]]"
        raise NotFound(f"no receiver is called {name}; {known}")
    return found[name]


async def try_receiver(settings: Settings, table: ReceiverTable) -> str:
    """Send one letter, written down nowhere; its delivery. `Transient` or `Permanent` if it was not taken."""
    topic = Topic(table.tenants[0], NoticeKind.ALERT, "trial", "")
    letter = Letter(0, (Gathered(topic, 1, SystemClock().now(), (WORDS,)),), 0)
    # Another one each time: mail readers drop what has the name of an earlier one.
    message = message_of(letter, f"{table.name}.trial-{secrets.token_hex(4)}", settings.public_url)
    await make_receiver(table).tell(message)
    return message.delivery
