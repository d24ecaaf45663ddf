"""The fingerprint of a failure: identifies the error, independent of the paths, ids, hosts, times and sizes in its lines.

It is made of the line that decided, with what varies replaced by placeholders, the name of the task or job without its index, and the cause. Failures with one
fingerprint are shown, counted and acted on as one error.

An id begins with the version of the algorithm. A changed algorithm gets the next number: the stored ids stay as they are, and one of an
earlier version can be computed again, since it depends only on the incident itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from forestay.domain.exceptions.evidence.evidence import tells_trouble, warns

VERSION = 1
"""The version of the algorithm. A change that gives a known line another id gets the next number."""
LONGEST_LINE = 600
"""Characters of a line that are considered."""
LONGEST_TITLE = 200
SURE = 0.5
"""From this confidence on, a cause found without a line (by a measure or an exit code) suffices; below it the log may tell more."""
LAST_LINES = 60
"""How many last lines of a log are searched for the last one that reports a problem."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which error a failure is."""

    line: str
    """The deciding line with placeholders."""
    task: str
    """The task or job, without its index."""
    cause: str
    version: int = VERSION

    @property
    def id(self) -> str:
        """The id, short and stable: the version, and a case-insensitive hash of the rest."""
        parts = (self.line.lower(), self.task.lower(), self.cause)
        # Lengths first, so that no two are equal.
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return f"{self.version}-{blake2b(text.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"

    @property
    def title(self) -> str:
        """The error in one line, for people."""
        return self.line if len(self.line) <= LONGEST_TITLE else f"{self.line[: LONGEST_TITLE - 1]}…"


def fingerprint(line: str, task: str, cause: str) -> Fingerprint:
    """The fingerprint of a failure by the line that decided."""
    return Fingerprint(normalised_line(line), normalised_task(task), cause)


def deciding_line(finding: Mapping[str, object], evidence: Mapping[str, object]) -> str:
    """The line that best describes the failure, from a finding and its evidence in their plain forms: one that decided, else the last of the log that reports a problem,
    else the batch system's message or the exit code. Empty if there is none of these."""
    shown = finding.get("lines")
    lines = [str(line) for line in shown] if isinstance(shown, Sequence) and not isinstance(shown, str) else []
    lines = [line for line in lines if _LETTERS.search(line)]
    # The launcher only repeats that the program failed, and a warning ended nothing; the reason is in another of the lines, if there is one.
    best = next((line for line in lines if not _WRAPPED.search(line) and not warns(line.lower())), "")
    decided = bool(finding.get("pattern"))
    if best and decided:
        return best
    sure, words = finding.get("confidence"), str(finding.get("words") or "")
    if decided and not lines and words and isinstance(sure, int | float) and sure >= SURE:
        return words
    # Nothing decided, or only a warning did: then the last words of the log are the best available.
    last_words = next(_troubled(str(evidence.get("log_tail") or "")), "")
    batch_words = [
        str(evidence.get(name) or "").strip() for name in ("transfer", "scheduler_state", "scheduler_reason")
    ]
    return (
        last_words
        or best
        or (lines[0] if lines else "")
        or ": ".join(part for part in batch_words if part)
        or _ending(evidence)
        or words
    )


_LETTERS = re.compile(r"[^\W\d_]{2}")
_WRAPPED = re.compile(
    r"(?i)terminated with an error exit status|returned non-?zero exit (?:status|code)|error executing process"
    r"|exiting because a job execution failed|command exited with non-zero status|^\s*traceback \("
)


def _troubled(log: str) -> Iterator[str]:
    """The lines at the end of a log that report a problem, the last first; frames of a trace and source are indented."""
    for line in reversed(log[-16_000:].splitlines()[-LAST_LINES:]):
        lowered = line.lower()
        if line and not line[0].isspace() and tells_trouble(lowered) and not warns(lowered):
            yield line


def _ending(evidence: Mapping[str, object]) -> str:
    for name, words in (("signal", "killed by signal"), ("exit_code", "exit code"), ("reason", "ended:")):
        if (value := evidence.get(name)) is not None and value != "":
            return f"{words} {value}"
    return ""


# These keep their number: it identifies the error.
_CODE = (
    r"(?P<code>(?i:\b(?:(?:errno|exit(?:ed|ing)?(?:[ _-](?:with|code|status|value)){0,2}|return[ _]?code|rc|ret|code|signal|xid|https?(?:/[0-9.]{1,3})?(?: error| status)?|status)[\s(\[#=:]{1,3}(?:is |of )?"
    r"|(?:error|response) #?)-?\d{1,5}(?!\w|\.\d|[-/]\w))|(?<![\w.])[45]\d\d(?= (?:Client|Server|Bad|Not|Forbidden|Unauthorized|Internal|Service|Gateway|Too|Request|Conflict|Gone|Payload|Method)\b)"
    r"|\berror[ \[(:]{1,2}[A-Z]{1,5}-?\d{3,5}\b|\b(?:ORA|PLS|SP2|TNS|SQLSTATE)[- \[]{1,2}[0-9A-Z]{4,6}\b|\blib[\w+-]{1,60}\.so(?:\.\d{1,4}){0,3}(?!\w))"
)
_TIME = (
    r"(?P<time>\b\d{4}[-/.]\d\d[-/.]\d\d(?:[T _,]{1,2}\d\d[:_]\d\d(?:[:_]\d\d)?(?:[.,]\d{1,9})?)?(?:Z\b| ?[+-]\d\d:?\d\d\b| UTC\b)?|\b\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?\b"
    r"|\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6} {1,2}\d{1,2},?(?: \d{4})?(?: \d\d:\d\d(?::\d\d)?)?(?: [A-Z]{3,4})?(?: \d{4})?\b)"
)
_UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_ADDRESS = r"(?P<url>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s'\"<>|,;)\]}]{1,400})"
_LAST_NAMES = "com|org|net|edu|gov|mil|int|io|dev|cloud|local|internal|lan|cluster|localdomain|eu|de|uk|us|ca|au|cn|jp|ch|fr|it|nl|se|es|cz|fi|dk|br|kr|tw|ru|pt|gr|ie|nz|mx|za|hu|il|sg|info|arpa"
_HOST = (
    r"(?P<host>(?<=\[)[A-Za-z][\w.-]{0,60}(?::\d{1,10}){1,4}(?=\])|(?:\b[\w.+-]{1,60}@)?(?:\b\d{1,3}(?:\.\d{1,3}){3}|\[(?:[0-9a-fA-F]{0,4}:){4,7}[0-9a-fA-F]{0,4}\]|\b(?:[0-9a-fA-F]{1,4}::?){4,7}[0-9a-fA-F]{1,4}"
    rf"|\b(?:[A-Za-z0-9][\w-]{{0,62}}\.){{1,6}}(?:{_LAST_NAMES}))(?!\w|\.\w|\()(?::\d{{1,5}}\b)?(?:/[\w.@%+~:-]{{0,100}}\w){{0,20}}|\b[\w.+-]{{1,60}}@[\w.-]{{1,80}}\b)"
)
_DATA = (
    "fastq|fq|fasta|fa|fna|faa|gz|bz2|xz|zst|zip|tar|tgz|bam|bai|cram|sam|vcf|bcf|bed|gtf|gff3?|txt|csv|tsv|json|ya?ml|xml|root|nc4?|hdf5?|h5(?:ad)?|npy|npz|pkl|pickle|parquet|dat|bin|raw|out|err|log|tmp|img|sif|simg"
    "|dcm|nii|mrcs?|star|pdb|cif|xtc|trr|gro|top|tpr|rds|rdata|db|sqlite|lock|pdf|png|jpe?g|tiff?|gwf|pt|pth|ckpt|onnx|safetensors|tex|html?|conf|cfg|ini|toml|part|idx|list|phy(?:lip)?|nwk|tree|sbatch|bson"
)
_PATH = (
    r"(?P<path>(?<![\w.<)-])(?:[A-Za-z]:\\[^\s'\"<>|*?,;]{1,300}|(?:~\w{0,30}|\.{1,2}|\$\{?\w{1,40}\}?)?/(?:[\w@%+=.,:{}$~#-]{1,200}/{1,2}){0,40}[\w@%+=.,{}$~#-]{0,200}\w/?"
    r"|(?=[\w@%+./-]{0,200}[A-Za-z])(?:[\w@%+.][\w@%+.-]{0,100}(?:/[\w@%+.=-]{1,100}){2,40}(?<=\w)/?|(?=[\w@%+./-]{0,200}[\d_])[\w@%+.][\w@%+.-]{0,100}/[\w@%+.-]{1,100}(?<=\w)/?)"
    rf"|[\w@%+][\w@%+./-]{{0,150}}\.(?i:{_DATA})\b(?!\.\w|\())(?:(?=:\d{{1,7}}\b)(?::\d{{1,7}}){{1,2}})?)"
)
_MEASURE = (
    r"(?P<size>(?<![\w.])-?\d{1,20}(?:[.,]\d{1,9})?(?: ?(?:[kKMGTPE]i?[Bb]|bytes?|[KMGTP]i?)\b| B\b))"
    r"|(?P<span>(?<![\w.])(?:\d{1,12}(?:\.\d{1,9})?(?:ms|us|ns|s|m|h|d)){1,5}\b|(?<![\w.])\d{1,12}(?:[.,]\d{1,9})? ?(?:ms|s|h|milliseconds?|msecs?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?)\b)"
)
_HEX = r"(?P<hex>\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?\b|\b0[xX][0-9a-fA-F]{1,32}L?\b|(?<=@)[0-9a-f]{5,16}\b)"
_HASH = rf"(?P<id>{_UUID}|\bsha256:[0-9a-f]{{4,64}}\b|\b(?=[0-9a-f]{{0,63}}\d)(?=[0-9a-f]{{0,63}}[a-f])[0-9a-f]{{7,64}}\b(?![-.]\w))"
_NUMBER = r"(?P<number>(?<![\w.])v?\d{1,6}(?:\.\d{1,6}){1,4}(?:[-+_]?[A-Za-z][\w.]{0,20})?(?!\w)|(?<![\w.])[+-]?\d{1,30}(?:[.,]\d{1,20}){0,6}(?:[eE][+-]?\d{1,4})?(?!\w|\.\d|-\d))"
_WORD = r"(?P<word>\b(?=[A-Za-z_-]{0,80}\d)\w{1,100}(?:-\w{1,60}){0,8}(?:\.\d\w{0,40}){0,6})"
_QUOTED = r"""(?P<quoted>(?<![\w'"`])[bruf]?(?:'[^'\n]{0,400}'|"[^"\n]{0,400}"|`[^`'\n]{0,400}['`])(?![\w])|[\u2018\u201c][^\u2019\u201d\n]{0,400}[\u2019\u201d])"""
_NAMED = (
    r"(?P<named>\b(?:user|owner|account|partition|queue|project|bucket|sample|pod|container|node|host|hostname|job|jobid|jobname|task|process|rank|worker|dataset|tenant)(?:[=:]|=\s| = )(?P<value>[\w./@+-]{1,100})"
    r"|\b(?:[Cc]ontainer|[Pp]od) (?P<which>[\w./@+-]{1,100})(?= (?:was|is|has)\b)|\b(?:for|of|by) (?:user|owner|account|project|sample|dataset|job|host|node|bucket) (?P<whose>(?!(?:in|is|was|has|with|of|and|to|on|the|at|for|not)\b)[\w./@+-]{1,100}))"
)
_VARIES = re.compile(
    "|".join((_QUOTED, _CODE, _TIME, _ADDRESS, _HASH, _HOST, _PATH, _HEX, _MEASURE, _NAMED, _NUMBER, _WORD))
)
_PLACEHOLDERS = {
    "time": "<time>", "url": "<url>", "host": "<host>", "size": "<size>", "span": "<time>", "hex": "<hex>", "id": "<id>", "number": "<n>",
}  # fmt: skip

# A name in quotes that identifies the error: what is missing, or the type of the exception.
_TELLING = re.compile(
    r"(?i)(?:KeyError|module named|module|package|library|libraries|symbol|instance of|attribute|command|option|argument|import name|from|function|method|operator|type|keyword|plugin|load failed for)\W{0,3}$"
)
_OF_A_FILE = re.compile(r"(?i)(?:no such file or directory|not a directory|file exists|file|directory|path|folder): ?$")
_DEFINED = re.compile(r"(?i)^ (?:object|is not defined|command not found|: command not found)")
_SENTENCE = re.compile(r"^[^/\\$|=<>{}]{0,400}$")
_PLACES = frozenset({"<path>", "<url>", "<host>"})
# Words with digits that are words: programs, formats and types, not ids.
_KNOWN = re.compile(
    r"(?i)^(?:(?:u?int|float|complex|bfloat|base|utf|sha|fp|bf|x)_?-?\d{1,3}(?:_\d\d)?|ipv[46]|s3|ec2|gs2|md5(?:sum)?|ext[234](?:-fs)?|k8s|oauth2|http2|tls\d?|h5py?|hdf[45]|netcdf[34]?|python[23]|py3|log4j2?|bzip2|p7zip|sqlite3|libstdc\+\+6?"
    r"|(?:bowtie|hisat|mmseqs|minimap|macs|deseq|dada|kraken|diamond|bwa-mem|geant|gatk|qiime|relion|bismark|trinity|ggplot|psycopg|urllib|boto|cp|log|lapack|mpi|mp|fast|vep|gromacs|root|mysql|db|jinja|pydantic|numpy)\d(?:-[a-z]{1,20})?"
    r"|[A-Za-z_]{1,40}\d{1,2}(?:\.[A-Za-z_]\w{0,60}){1,6}|[A-Za-z_]\w{0,60}(?:Error|Exception)|lib[\w+-]{1,40}\.so(?:\.\d{1,4}){0,3})$"
)
_SOURCE = re.compile(
    r"(?i)^[\w+-]{1,80}\.(?:py|c|cc|cpp|cxx|cu|h|hpp|rs|go|java|scala|f|f90|f95|for|jl|pl|pm|r|sh|js|ts|nf|smk|snakefile|groovy|rb|lua|so)(?:\.\d{1,4}){0,3}$"
)
# What loggers, launchers and the kernel put before a line. A level without a colon or brackets may be part of the sentence: "Error in readRDS(file)".
_AHEAD = re.compile(
    r"(?:\s*(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ,]{0,2}(?:\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?\]?|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?|\[ {0,8}\d{1,9}\.\d{1,6}\]"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[- ]{1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \S{1,60} \S{1,40}\[\d{1,7}\]:)?"
    r"|(?i:\[(?:info|error|warn|warning|debug|severe|fatal|critical|notice|stderr|stdout)\]:?|(?:info|error|warn|warning|debug|severe|fatal|critical|notice|stderr|stdout)(?: {0,4}[:|]| {1,4}-(?= )| {2,}|\t))"
    r"|\[\d{1,6}(?:,\d{1,6})?\](?:<std\w{3}>)?:?|\[?[Rr]ank ?\d{1,8}\]?:|\d{1,6}:(?=\s)|\([\w.]{1,40} pid=\d{1,8}[^)]{0,60}\)|\{[\w.]{1,60}:\d{1,6}\}|(?:StatusReason|stoppedReason|MESSAGE|Message|Reason|reason) {0,4}:(?= )|\d\d/\d\d/\d\d \d\d:\d\d:\d\d|[\u2502|>](?=\s))\s*){1,8}"
)
_SPACES = re.compile(r"\s+")
_AGAIN = re.compile(r"(<(?:n|id|name|path|host|time|size|hex|url)>)(?:[\s,;|x*]{1,3}\1)+")


def normalised_line(line: str) -> str:
    """The line without its prefix, and with placeholders for what varies between failures of one kind."""
    text = line.strip()[:LONGEST_LINE]
    ahead = _AHEAD.match(text)
    return _masked(text[ahead.end() :] if ahead is not None and ahead.end() < len(text) else text)


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    masked = _SPACES.sub(" ", _VARIES.sub(_placeholder, text)).strip()
    return _AGAIN.sub(r"\1", masked).rstrip(" :;,|") or masked


def _placeholder(match: re.Match[str]) -> str:
    kind, text = match.lastgroup or "", match[0]
    if kind in ("value", "which", "whose"):
        kind = "named"
    if kind == "path":
        # The source or script in which it happened identifies the error, wherever it is installed.
        name = re.split(r"[/\\]", text.partition(":")[0])[-1]
        return f"<path>/{name}" if _SOURCE.match(name) and not any(map(str.isdigit, name)) else "<path>"
    if (put := _PLACEHOLDERS.get(kind)) is not None:
        return put
    if kind == "word":
        if text.startswith("slurmstepd-"):
            return "slurmstepd"
        return text if _KNOWN.match(text) or _SOURCE.match(text) else "<id>"
    if kind == "named":
        value = match["value"] or match["which"] or match["whose"]
        return f"{text[: len(text) - len(value)]}<name>"
    return _quoted(match) if kind == "quoted" else text


def _quoted(match: re.Match[str]) -> str:
    text, whole = match[0], match.string
    inner = text.lstrip("bruf")[1:-1]
    masked = _masked(inner)
    before, behind = whole[max(0, match.start() - 40) : match.start()], whole[match.end() : match.end() + 30]
    if masked in _PLACES or _OF_A_FILE.search(before):
        return masked if masked in _PLACES else "<path>"
    sentence = sum(map(str.isalpha, inner.split())) >= 3 and _SENTENCE.match(inner) is not None
    if sentence or _TELLING.search(before) or _DEFINED.match(behind):
        return f"{text[0]}{masked}{text[-1]}"
    return "<name>"


_BRACKETED = re.compile(r"\s*[\[(][^\])]{0,200}[\])]")
_INDEX = re.compile(
    rf"[-_.:#/@]?(?:{_UUID}|(?=[0-9a-f]{{0,63}}\d)(?=[0-9a-f]{{0,63}}[a-f])[0-9a-f]{{7,64}}(?![A-Za-z0-9])|\d+(?![A-Za-z0-9]))"
)


@lru_cache(maxsize=4096)
def normalised_task(name: str) -> str:
    """The name of a task or job without the index of an instance: ``align[3]``, ``align_17`` and ``align (sample 4)`` are one."""
    short = name.strip()[:200]
    plain = _BRACKETED.sub("", short)
    parts = re.split(r"([-_.:#/@])", plain)
    if any(_KNOWN.match(part) for part in parts):
        return plain
    return _INDEX.sub("", plain) or short
