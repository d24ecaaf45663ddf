"""Which server and which token are used, and where each was configured.

The order: what the caller gives, the environment, the project's file, the user's, the system's, and last a `forestay dev` that
runs on this machine.

A project's file comes from whoever wrote the project. It may choose between servers that the user or the system has
named, and nothing else: a token is never sent to an address that only a checked-out folder knows.
"""

from __future__ import annotations

import os
import ssl
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from forestay.client.transport.connection import Servers
from forestay.client.transport.errors import BadSettings

PROJECT_FILE = ".forestay.toml"
_NAMES = frozenset({"server", "servers", "token_file", "ca_file", "certificate"})
_TEXTS = ("server", "token_file", "ca_file", "certificate")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client. The token is never shown, only where it is stored."""

    server: Setting
    token: Setting
    """Its value is the token."""


@dataclass(frozen=True, slots=True)
class SettingsFiles:
    """The files that are looked into."""

    user: Path
    system: Path
    dev: Path
    """Where `forestay dev` leaves its address and token while it runs."""

    @property
    def user_token(self) -> Path:
        return self.user.with_name("token")

    @property
    def dev_token(self) -> Path:
        return self.dev.with_name("token")


def places(environment: Mapping[str, str]) -> SettingsFiles:
    """Where the files are on this system; `FORESTAY_CLIENT_CONFIG` names another file of the user's."""
    own = environment.get("FORESTAY_CLIENT_CONFIG")
    user = Path(own).expanduser() if own else Path(platformdirs.user_config_dir("forestay"), "config.toml")
    return SettingsFiles(
        user=user,
        system=Path(platformdirs.site_config_dir("forestay"), "config.toml"),
        dev=Path(platformdirs.user_state_dir("forestay"), "dev", "config.toml"),
    )


def find_settings(
    *,
    server: str | None = None,
    token_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> ClientSettings:
    """Find server and token. `BadSettings` says what is missing and how to give it."""
    environment = os.environ if environment is None else environment
    where = places(environment)
    setting = find_server(server, environment, folder or Path.cwd(), where)
    token = _find_token(setting, token_file, environment, where)
    return ClientSettings(setting, token)


def find_server(flag: str | None, environment: Mapping[str, str], folder: Path, where: SettingsFiles) -> Setting:
    """The first configured server, in order of precedence."""
    if flag:
        return Setting(flag, "--server")
    if environment.get("FORESTAY_SERVER"):
        return Setting(environment["FORESTAY_SERVER"], "FORESTAY_SERVER")
    user, system, dev = _read(where.user), _read(where.system), _read(where.dev)
    project = project_file(folder)
    if project is not None:
        setting = _project_server(project, (user, system, dev), where)
        if setting is not None:
            return setting
    for path, content in ((where.user, user), (where.system, system), (where.dev, dev)):
        if content.get("server"):
            return Setting(content["server"], str(path))
    raise BadSettings(
        "No server is configured. Use --server or FORESTAY_SERVER, or write\n"
        f'    server = "https://forestay.example.org:8443"\ninto {where.user}. To try Forestay on this machine: forestay dev'
    )


def project_file(folder: Path) -> Path | None:
    """The nearest project file, upwards from a folder."""
    for place in (folder, *folder.parents):
        if (place / PROJECT_FILE).is_file():
            return place / PROJECT_FILE
    return None


def _project_server(path: Path, others: tuple[Mapping[str, Any], ...], where: SettingsFiles) -> Setting | None:
    content = _read(path)
    if content.keys() - {"server"}:
        raise BadSettings(f"{path}: a project's file may only set the server; put the rest into {where.user}")
    server = content.get("server")
    if not server:
        return None
    known = {address for other in others for address in (other.get("server"), *other.get("servers", ())) if address}
    if Servers(server).addresses not in [Servers(address).addresses for address in known]:
        raise BadSettings(
            f"{path} names the server {server}, which is not in your own settings, so your token is not sent there. If you trust it, add\n"
            f'    servers = ["{server}"]\nto {where.user}, or use --server {server}'
        )
    return Setting(server, str(path))


def _find_token(server: Setting, flag: Path | None, environment: Mapping[str, str], where: SettingsFiles) -> Setting:
    if flag is not None:
        return Setting(read_token(flag), str(flag))
    if environment.get("FORESTAY_TOKEN"):
        return Setting(_clean(environment["FORESTAY_TOKEN"], "FORESTAY_TOKEN"), "FORESTAY_TOKEN")
    if environment.get("FORESTAY_TOKEN_FILE"):
        path = Path(environment["FORESTAY_TOKEN_FILE"]).expanduser()
        return Setting(read_token(path), f"{path} (FORESTAY_TOKEN_FILE)")
    dev = _read(where.dev)
    if dev.get("server") == server.value and where.dev_token.exists():
        return Setting(read_token(where.dev_token), str(where.dev_token))
    if (token := _named_token(where.user)) is not None:
        return token
    if where.user_token.exists():
        return Setting(read_token(where.user_token), str(where.user_token))
    if (token := _named_token(where.system)) is not None:
        return token
    raise BadSettings(
        f"There is no token for {server.value}. Put yours into {where.user_token}, readable by you only (chmod 600), "
        "or set FORESTAY_TOKEN or FORESTAY_TOKEN_FILE"
    )


def _named_token(path: Path) -> Setting | None:
    named = _read(path).get("token_file")
    if not named:
        return None
    token = path.parent / Path(named).expanduser()
    return Setting(read_token(token), f"{token} (named by {path})")


def find_tls(environment: Mapping[str, str] | None = None) -> ssl.SSLContext | None:
    """The certificate authorities and the client certificate: `FORESTAY_CA_FILE` and `FORESTAY_CLIENT_CERTIFICATE`, else the user's file, else the system's. None: nothing is configured."""
    environment = os.environ if environment is None else environment
    where = places(environment)
    ca = _named("ca_file", environment.get("FORESTAY_CA_FILE"), where)
    own = _named("certificate", environment.get("FORESTAY_CLIENT_CERTIFICATE"), where)
    if ca is None and own is None:
        return None
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if own is not None:
            with own.open("rb") as file:
                _own_file(file.fileno(), own, "its key")
            context.load_cert_chain(own)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(f"the certificates in {ca or own} cannot be used: {error}") from error
    return context


def _named(name: str, setting: str | None, where: SettingsFiles) -> Path | None:
    if setting:
        return Path(setting).expanduser()
    for path in (where.user, where.system):
        if named := _read(path).get(name):
            return path.parent / Path(named).expanduser()
    return None


def _own_file(descriptor: int, path: Path, what: str) -> None:
    """Raise `BadSettings` if anyone else can read or change the file."""
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_mode & 0o077:
        raise BadSettings(
            f"{path} can be read or written by others (mode {stat.S_IMODE(about.st_mode):04o}), so {what} is not used. "
            f"Run: chmod 600 {path}. If others may have read it, request a new one"
        )
    if about.st_uid not in {os.geteuid(), 0}:
        raise BadSettings(f"{path} belongs to another user, so {what} is not used; use a copy of your own")


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read."""
    try:
        with path.open(encoding="utf-8") as file:
            _own_file(file.fileno(), path, "its token")
            return _clean(file.read(), str(path))
    except OSError as error:
        raise BadSettings(f"the token file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"{path} does not contain a token: it is not text") from error


def _clean(text: str, source: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or any(char.isspace() or not char.isprintable() for char in token):
        raise BadSettings(f"{source} does not contain a token: expected one line of letters, digits and punctuation")
    return token


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path} is not valid TOML: {error}") from error
    unknown = content.keys() - _NAMES
    if unknown:
        raise BadSettings(
            f"{path}: {', '.join(sorted(unknown))} is not a setting; known settings: {', '.join(sorted(_NAMES))}"
        )
    if not all(isinstance(content.get(name, ""), str) for name in _TEXTS):
        raise BadSettings(f"{path}: server, token_file, ca_file and certificate must be strings")
    servers = content.get("servers", [])
    if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
        raise BadSettings(f"{path}: servers must be a list of addresses")
    return content
