"""Which server and token are used, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import TOKEN, FakeApi


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def server_of(shell: Shell, *words: str) -> tuple[str, str]:
    server = shell("config", "--json", *words).json["server"]
    return server["value"], server["source"]


def test_the_order_of_precedence(lonely: Shell, tmp_path: Path) -> None:
    dev = write(tmp_path / "state/forestay/dev/config.toml", 'server = "http://127.0.0.1:1"')
    assert server_of(lonely) == ("http://127.0.0.1:1", str(dev))
    system = write(tmp_path / "system/forestay/config.toml", 'server = "https://system"')
    assert server_of(lonely) == ("https://system", str(system))
    text = 'server = "https://user"\nservers = ["https://project"]'
    user = write(tmp_path / "config/forestay/config.toml", text)
    assert server_of(lonely) == ("https://user", str(user))
    project = write(tmp_path / ".forestay.toml", 'server = "https://project/"')
    assert server_of(lonely) == ("https://project/", str(project))
    lonely.environment["FORESTAY_SERVER"] = "https://environment"
    assert server_of(lonely) == ("https://environment", "FORESTAY_SERVER")
    assert server_of(lonely, "--server", "https://flag") == ("https://flag", "--server")


def test_a_project_cannot_send_a_token_to_a_server_of_its_own(lonely: Shell, tmp_path: Path, api: FakeApi) -> None:
    write(tmp_path / "config/forestay/token", TOKEN)
    write(tmp_path / "config/forestay/config.toml", 'server = "https://mine.example.org"')
    write(tmp_path / ".forestay.toml", f'server = "{api.url}"')
    ended = lonely("status")
    assert (ended.code, api.requests) == (2, [])
    assert "your token is not sent there" in ended.err
    write(tmp_path / ".forestay.toml", 'token_file = "/etc/passwd"')
    assert lonely("status").code == 2


def test_the_users_own_file_and_token(lonely: Shell, tmp_path: Path, api: FakeApi) -> None:
    write(tmp_path / "config/forestay/config.toml", f'server = "{api.url}"')
    write(tmp_path / "config/forestay/token", f"{TOKEN}\n")
    assert lonely("status").code == 0


def test_a_token_file_by_flag_environment_and_setting(lonely: Shell, tmp_path: Path, api: FakeApi) -> None:
    token = write(tmp_path / "secret", TOKEN)
    lonely.environment["FORESTAY_SERVER"] = api.url
    assert lonely("status").code == 2
    assert lonely("status", "--token-file", str(token)).code == 0
    lonely.environment["FORESTAY_TOKEN_FILE"] = str(token)
    assert lonely("status").code == 0
    del lonely.environment["FORESTAY_TOKEN_FILE"]
    own = write(tmp_path / "other/own.toml", 'token_file = "../secret"')
    lonely.environment["FORESTAY_CLIENT_CONFIG"] = str(own)
    assert lonely("status").code == 0


def test_the_users_own_token_comes_before_the_systems(lonely: Shell, tmp_path: Path, api: FakeApi) -> None:
    write(tmp_path / "system/forestay/config.toml", f'server = "{api.url}"\ntoken_file = "{tmp_path / "shared"}"')
    write(tmp_path / "shared", TOKEN[::-1])
    assert lonely("status").code != 0
    write(tmp_path / "config/forestay/token", TOKEN)
    assert lonely("status").code == 0


def test_the_token_of_a_dev_server_goes_to_it_alone(lonely: Shell, tmp_path: Path, api: FakeApi) -> None:
    write(tmp_path / "state/forestay/dev/config.toml", f'server = "{api.url}"')
    write(tmp_path / "state/forestay/dev/token", TOKEN)
    assert lonely("status").code == 0
    ended = lonely("status", "--server", api.url.replace("127.0.0.1", "localhost"))
    assert ended.code == 2
    assert "There is no token" in ended.err


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_can_read_is_refused(lonely: Shell, tmp_path: Path, api: FakeApi, mode: int) -> None:
    token = write(tmp_path / "secret", TOKEN, mode)
    ended = lonely("status", "--server", api.url, "--token-file", str(token))
    assert (ended.code, api.requests) == (2, [])
    assert f"chmod 600 {token}" in ended.err
    assert TOKEN not in ended.err


@pytest.mark.parametrize("text", ["", "two words", "t\u00f6ken"])
def test_what_is_not_a_token(lonely: Shell, tmp_path: Path, api: FakeApi, text: str) -> None:
    token = write(tmp_path / "secret", text)
    assert lonely("status", "--server", api.url, "--token-file", str(token)).code == 2
    assert lonely("status", "--server", api.url, "--token-file", str(tmp_path / "missing")).code == 2


@pytest.mark.parametrize(
    "text",
    ["server = 3", "servers = 'x'", "port = 1", "not toml", "server = 'ftp://x'", "server = 'https://me:secret@x'"],
)
def test_a_file_with_mistakes_is_named(lonely: Shell, tmp_path: Path, text: str) -> None:
    write(tmp_path / "config/forestay/config.toml", text)
    write(tmp_path / "config/forestay/token", TOKEN)
    ended = lonely("status")
    assert ended.code == 2
    assert "secret" not in ended.err


def test_nothing_is_set(lonely: Shell) -> None:
    ended = lonely("queue")
    assert (ended.code, ended.out) == (2, "")
    assert "forestay dev" in ended.err
    config = lonely("config")
    assert (config.code, "No server is configured" in config.err) == (0, True)


def test_config_never_shows_the_token(forestay: Shell) -> None:
    for words in (["config"], ["config", "--json"], ["status", "-v"]):
        ended = forestay(*words)
        assert TOKEN not in ended.out + ended.err


def test_a_token_in_clear_text_is_warned_of(lonely: Shell) -> None:
    lonely.environment |= {"FORESTAY_TOKEN": TOKEN}
    ended = lonely("status", "--server", "http://forestay.invalid", "--patience", "0")
    assert ended.code == 6
    assert "not encrypted" in ended.err


def test_the_next_server_is_asked_when_one_is_away(forestay: Shell, api: FakeApi) -> None:
    forestay.environment["FORESTAY_SERVER"] = f"http://127.0.0.1:9,{api.url}"
    assert forestay("status", "--json").code == 0
