"""Failures whose error is known: each template of `error_templates.txt` is one error, told again and again with other paths, ids, hosts, versions, sizes and times."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TEMPLATES = tuple(Path(__file__).with_name("error_templates.txt").read_text(encoding="utf-8").splitlines())
ORDINARY = (Path(__file__).parents[4] / "unit" / "packs" / "ordinary_output.txt").read_text(encoding="utf-8").splitlines()  # fmt: skip
_FIELD = re.compile(r"\{(\w+)\}")
_WORDS = [
    "cohort",
    "lungs",
    "tumor",
    "baseline",
    "control",
    "gamma",
    "brain",
    "liver",
    "wildtype",
    "mutant",
    "march",
    "pilot",
    "alpha",
    "region",
    "plate",
    "batch",
]
_USERS = ["ada", "bob", "chen.w", "dmitri", "e_ruiz", "farah", "grace", "hiro"]
_SUFFIXES = ["fastq.gz", "bam", "vcf.gz", "csv", "h5", "nc", "root", "txt", "json", "parquet", "tsv"]


class GeneratedError(NamedTuple):
    """A failure, and which error it is."""

    error: int
    line: str
    log: str
    task: str


class Pairs(NamedTuple):
    """How well a grouping agrees with the truth, over all pairs of failures."""

    precision: float
    """Of the pairs that are grouped together, those that belong together."""
    recall: float
    """Of the pairs that belong together, those that are grouped together."""


def pairs(labelled: Iterable[tuple[Hashable, Hashable]]) -> Pairs:
    """Of (truth, group) of each failure."""
    both = Counter(labelled)
    truth: Counter[Hashable] = Counter()
    group: Counter[Hashable] = Counter()
    for (error, name), many in both.items():
        truth[error] += many
        group[name] += many
    right, grouped, belonging = (sum(many * (many - 1) // 2 for many in c.values()) for c in (both, group, truth))
    return Pairs(right / grouped if grouped else 1.0, right / belonging if belonging else 1.0)


def generated_errors(seed: int, each: int = 12, templates: Sequence[str] = TEMPLATES) -> list[GeneratedError]:
    """So many failures of each error. All are of one task, so that its name tells none of them apart; only its index differs."""
    chance = random.Random(seed)
    made = []
    for error, template in enumerate(templates):
        prefix = chance.choice(_PREFIXES)
        for _ in range(each):
            text = _FIELD.sub(lambda match: _FIELDS[match[1]](chance), template).replace("{{", "{")
            line = f"{prefix(chance)}{text}"
            before = [f"{chance.choice(ORDINARY)} {chance.randrange(10**6)}" for _ in range(chance.randrange(1, 12))]
            task = chance.choice(
                (f"align[{_number(chance)}]", f"align_{_number(chance)}", f"align ({_sample(chance)})")
            )
            made.append(GeneratedError(error, line, "\n".join([*before, line]), task))
    return made


def _number(chance: random.Random) -> str:
    return str(chance.randrange(10 ** chance.randrange(1, 8)))


def _hexadecimal(chance: random.Random, digits: int) -> str:
    return f"{chance.getrandbits(4 * digits):0{digits}x}"


def _uuid(chance: random.Random) -> str:
    text = _hexadecimal(chance, 32)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _host(chance: random.Random) -> str:
    n = chance.randrange(1, 999)
    return chance.choice((f"node{n}", f"gpu{n:03}", f"cn-{n:04}", f"c{n:04}a-s{n % 9}", f"r{n % 40}i{n % 4}n{n % 36}", f"phoenix-{n:02}", f"ip-10-0-{n % 250}-{n % 7}"))  # fmt: skip


def _fqdn(chance: random.Random) -> str:
    return f"{_host(chance)}.{chance.choice(('cluster.example.org', 'hpc.uni.example.edu', 'site.de', 'internal', 'grid.example.cn'))}"


def _ip(chance: random.Random) -> str:
    return ".".join(str(chance.randrange(1, 255)) for _ in range(4))


def _sample(chance: random.Random) -> str:
    n = chance.randrange(10**6)
    return chance.choice((f"NA{n:05}", f"ERR{n}_2", f"S{n % 400}", f"sample_{n}", f"{chance.choice(_WORDS)}-{n % 90}"))


def _file(chance: random.Random) -> str:
    return (
        f"{chance.choice((_sample(chance), chance.choice(_WORDS), _hexadecimal(chance, 8)))}.{chance.choice(_SUFFIXES)}"
    )


def _path(chance: random.Random) -> str:
    user, n = chance.choice(_USERS), chance.randrange(10**6)
    root = chance.choice((f"/home/{user}", "/scratch", f"/gpfs/projects/{chance.choice(_WORDS)}", f"/lustre/{n}", f"/local/job.{n}", "work", "../results"))  # fmt: skip
    middle = [chance.choice((_sample(chance), chance.choice(_WORDS), _uuid(chance), _hexadecimal(chance, 6))) for _ in range(chance.randrange(1, 4))]  # fmt: skip
    return "/".join((root, *middle, _file(chance)))


def _time(chance: random.Random) -> str:
    return f"2026-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}T{_clock(chance)}"


def _clock(chance: random.Random) -> str:
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def _version(chance: random.Random) -> str:
    first = f"{chance.randrange(1, 12)}.{chance.randrange(30)}.{chance.randrange(10)}"
    return first + chance.choice(
        ("", "", f"+cuda{chance.randrange(11, 13)}.{chance.randrange(9)}", f"-rc{chance.randrange(1, 4)}", "a")
    )


def _size(chance: random.Random) -> str:
    return f"{chance.uniform(0.1, 900):.{chance.randrange(3)}f} {chance.choice(('MiB', 'GiB', 'GB', 'Mb', 'KiB'))}"


def _url(chance: random.Random) -> str:
    return f"https://{_fqdn(chance)}/{chance.choice(_WORDS)}/{_uuid(chance)}?part={_number(chance)}"


_FIELDS: Mapping[str, Callable[[random.Random], str]] = {
    "n": _number,
    "digit": lambda chance: str(chance.randrange(10)),
    "path": _path,
    "file": _file,
    "host": _host,
    "fqdn": _fqdn,
    "ip": _ip,
    "port": lambda chance: str(chance.randrange(1024, 65536)),
    "url": _url,
    "urlpath": lambda chance: f"/api/v{chance.randrange(3)}/{chance.choice(_WORDS)}/{_uuid(chance)}",
    "s3": lambda chance: f"s3://{chance.choice(_WORDS)}-bucket/{_path(chance).lstrip('./')}",
    "size": _size,
    "kb": lambda chance: f"{chance.randrange(10**6, 10**8)}kb",
    "version": _version,
    "hex": lambda chance: f"0x{_hexadecimal(chance, chance.choice((2, 8, 12)))}",
    "hh": lambda chance: _hexadecimal(chance, 2),
    "hexbytes": lambda chance: f"\\x{_hexadecimal(chance, 2)}\\x{_hexadecimal(chance, 2)}",
    "iso": _time,
    "clock": _clock,
    "uptime": lambda chance: f"{chance.randrange(10**6)}.{chance.randrange(10**6):06}",
    "job": lambda chance: str(chance.randrange(10**5, 10**8)),
    "user": lambda chance: chance.choice(_USERS),
    "word": lambda chance: chance.choice(_WORDS),
    "sample": _sample,
    "read": lambda chance: f"{_sample(chance)}:{chance.randrange(400)}:{_number(chance)}",
    "command": lambda chance: f"bwa mem -t {chance.randrange(64)} {_path(chance)} {_path(chance)}",
    "process": lambda chance: f"RNASEQ:ALIGN ({_sample(chance)})",
    "image": lambda chance: f"{chance.choice(('docker.io', 'quay.io'))}/{chance.choice(_WORDS)}/tool:{_version(chance).replace('+', '-')}",
}  # fmt: skip
_PREFIXES: Sequence[Callable[[random.Random], str]] = (
    lambda _: "",
    lambda _: "",
    lambda _: "",
    lambda chance: f"{_time(chance).replace('T', ' ')},{chance.randrange(1000):03} ERROR - ",
    lambda chance: f"[{_time(chance)}+0200] [error] ",
    lambda chance: f"[{chance.randrange(64)},{chance.randrange(64)}]<stderr>: ",
    lambda chance: f"{_clock(chance)}.{chance.randrange(1000):03} | ",
)  # fmt: skip
