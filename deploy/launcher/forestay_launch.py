#!/usr/bin/python3 -IS
"""forestay-launch: submits one pilot to the batch system as the user whose jobs it will run, or cancels one.

A site agent starts it as root, by a sudo rule that allows no arguments at all, and writes one request to its standard input:

    {"act": "submit", "user": "ann", "size": "standard", "launch": "0f3a…", "secret": "fse-…"}
    {"act": "cancel", "user": "ann", "launch": "0f3a…", "job": "4711"}

What runs is in /etc/forestay/launch.conf, which only root can write: for each size of pilots one submit command and one pilot's
command, and the command that cancels. Of the request only the user, the launch, the batch job's number and the secret go in, each
in its own narrow form. No shell sees any of it before the batch system starts the pilot's script, as the user.

The order matters: the request and the configuration are read and checked as root, nothing is opened, created or started. Then the
process becomes the user for good, and only then touches the user's folder and starts the command. `docs/how-to/own-users.md` says
how to install it, what it protects against, and what it does not.
"""

import configparser
import contextlib
import grp
import json
import os
import pwd
import re
import shlex
import signal
import stat
import sys
import syslog
import time

CONFIGURATION = "/etc/forestay/launch.conf"
LEAST_UID = 1000
"""Below it are the users of the system; the configuration may raise it, and not lower it."""
LONGEST_REQUEST = 4096
LONGEST_SCRIPT = 32768
"""Bytes that a pipe surely holds, so that nobody has to stay to write them."""
SECONDS = 60
"""After which the batch system's command is killed; the agent, which is another user, could not."""
KEEP = 14 * 86_400
"""Seconds for which the output of a pilot stays in its user's folder."""

FORMS = {
    "act": r"submit|cancel",
    "user": r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}",
    "size": r"[A-Za-z0-9._@+-]{1,64}",
    "launch": r"[a-z0-9][a-z0-9-]{0,63}",
    "secret": r"fse-[A-Za-z0-9_-]{16,200}",
    "job": r"[0-9]{1,20}",
}
NEEDED = {"submit": {"act", "user", "size", "launch", "secret"}, "cancel": {"act", "user", "launch", "job"}}
OWN_FILE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\.(secret|log)")


class RefusedError(Exception):
    """The request is not carried out, and why."""


def check_caller() -> None:
    """Only what the sudo rule allows."""
    if len(sys.argv) > 1:
        raise RefusedError("it takes no arguments")
    if os.getresuid() != (0, 0, 0):
        raise RefusedError("it is started as root, by sudo")


def read_request(text: bytes) -> "dict[str, str]":
    """The request, of which every part has its form."""
    if len(text) > LONGEST_REQUEST:
        raise RefusedError("the request is too long")
    try:
        request = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        raise RefusedError("the request is not a JSON object in ASCII") from None
    if not isinstance(request, dict) or not all(isinstance(value, str) for value in request.values()):
        raise RefusedError("the request is not a JSON object of texts")
    if set(request) != NEEDED.get(request.get("act", "")):
        raise RefusedError("the request does not have exactly the fields of a submission or a cancellation")
    for name, value in request.items():
        if not re.fullmatch(FORMS[name], value, re.ASCII):
            raise RefusedError(f"the request's {name} has a wrong form")
    return request


def read_configuration(path: str) -> configparser.ConfigParser:
    """The configuration, of which only root decided what is in it."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, encoding="utf-8") as source:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != 0 or about.st_mode & 0o022:
            raise RefusedError(f"{path} must be a file of root's that nobody else can write")
        configuration = configparser.ConfigParser(interpolation=None, delimiters=("=",))
        configuration.optionxform = str  # type: ignore[assignment,method-assign]
        configuration.read_file(source)
    return configuration


def find_user(name: str, configuration: configparser.ConfigParser) -> "tuple[pwd.struct_passwd, list[int]]":
    """The account and its groups; an account of the system, or outside the allowed group, is refused."""
    try:
        user = pwd.getpwnam(name)
        allowed = grp.getgrnam(configuration["launcher"]["group"]).gr_gid
    except KeyError as error:
        raise RefusedError(f"there is no such account, or no group in the configuration: {error}") from None
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    if user.pw_name != name or user.pw_uid < max(LEAST_UID, configuration["launcher"].getint("least_uid", LEAST_UID)):
        raise RefusedError(f"{name} is an account of the system")
    if allowed == 0 or allowed not in groups:
        raise RefusedError(f"{name} is not in the group {configuration['launcher']['group']}")
    if 0 in groups:
        raise RefusedError(f"{name} is in root's group")
    return user, groups


def filled(template: str, values: "dict[str, str]") -> "list[str]":
    """The words of a command of the configuration, with what the request adds to them."""
    words = shlex.split(template)
    for name, value in values.items():
        words = [word.replace("{" + name + "}", value) for word in words]
    if not words or not words[0].startswith("/"):
        raise RefusedError("a command of the configuration does not begin with an absolute path")
    return words


def become(user: pwd.struct_passwd, groups: "list[int]") -> None:
    """Be the user and nobody else from here on, without anything of the caller's."""
    os.setgroups(groups)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    if os.getresuid() != (user.pw_uid,) * 3 or os.getresgid() != (user.pw_gid,) * 3 or 0 in os.getgroups():
        raise RefusedError("the process could not become the user")
    os.umask(0o077)
    syslog.closelog()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one by which the list was read
                os.close(int(name))
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def environment_of(user: pwd.struct_passwd, configuration: configparser.ConfigParser) -> "dict[str, str]":
    """The whole environment of the command."""
    own = {"PATH": "/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    own.update({"SHELL": "/bin/sh", "LANG": "C.UTF-8"})
    own.update(configuration["environment"] if configuration.has_section("environment") else {})
    return own


def keep_secret(folder: str, launch: str, secret: str) -> None:
    """Write the secret into the user's own folder, for the user's eyes alone, and remove what has become old there."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(place)
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise RefusedError(f"{folder} must belong to its user, and be closed to all others")
    for name in os.listdir(place):
        with contextlib.suppress(OSError):
            age = time.time() - os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime
            if OWN_FILE.fullmatch(name) and age > KEEP:
                os.unlink(name, dir_fd=place)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{launch}.secret", dir_fd=place)  # of an earlier try
    create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(f"{launch}.secret", create, 0o600, dir_fd=place), "w", encoding="ascii") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    os.close(place)


def replace_stdin(text: str) -> None:
    """Let the command read this text as its standard input."""
    content = text.encode()
    if len(content) > LONGEST_SCRIPT:
        raise RefusedError("the pilot's command is too long")
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)


def carry_out(request: "dict[str, str]", configuration: configparser.ConfigParser) -> None:
    """Check the rest, become the user, and turn into the batch system's command. Does not return."""
    user, groups = find_user(request["user"], configuration)
    values = {"user": user.pw_name, "home": user.pw_dir, "launch": request["launch"]}
    (folder,) = filled(configuration["launcher"]["folder"], values)
    values["folder"] = folder
    script = ""
    if request["act"] == "submit":
        section = f"size {request['size']}"
        if not configuration.has_section(section):
            raise RefusedError(f"there is no [{section}] in the configuration")
        command = filled(configuration[section]["submit"], values)
        script = f"#!/bin/sh\nexec {shlex.join(filled(configuration[section]['pilot'], values))}\n"
    else:
        command = filled(configuration["cancel"]["command"], {**values, "job": request["job"]})
    environment = environment_of(user, configuration)
    become(user, groups)
    os.chdir("/")
    if request["act"] == "submit":
        keep_secret(folder, request["launch"], request["secret"])
        os.chdir(folder)
    replace_stdin(script)
    signal.alarm(SECONDS)
    os.execve(command[0], command, environment)  # noqa: S606 - without a shell, on purpose


def main() -> int:
    """Carry one request out; 2 when it is refused."""
    syslog.openlog("forestay-launch", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    try:
        check_caller()
        request = read_request(sys.stdin.buffer.read(LONGEST_REQUEST + 1))
        about = " ".join(f"{name}={value}" for name, value in sorted(request.items()) if name != "secret")
        syslog.syslog(syslog.LOG_NOTICE, f"request of {os.environ.get('SUDO_USER', 'root')[:64]!r}: {about}")
        carry_out(request, read_configuration(CONFIGURATION))
    except RefusedError as refusal:
        reason = str(refusal)
    except (OSError, ValueError, KeyError, configparser.Error) as error:
        reason = f"{type(error).__name__}: {error}"
    syslog.syslog(syslog.LOG_WARNING, f"refused: {reason}"[:500])
    print(f"forestay-launch: refused: {reason}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main())
