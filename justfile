# Development tasks. `uv run just` lists them; `uv run just check test` is what a change must pass.

set shell := ["bash", "-euo", "pipefail", "-c"]

# How many test processes run side by side; the tests mostly wait, but a slow machine has no time left meanwhile.
beside := env("FORESTAY_BESIDE", "4")

# List the tasks.
default:
    @just --list --unsorted

# Install everything a developer needs, and the hooks that run before a commit.
setup:
    uv sync --locked --all-groups
    uv run pre-commit install

# Lint, format, types, layers and texts; changes nothing.
check: check-python check-pilot check-shell check-texts
    uv run lint-imports

[private]
check-python:
    uv run ruff check .
    uv run ruff format --check .
    uv run mypy $(git ls-files --cached --others --exclude-standard '*.py' | grep -o '^[a-z]*/' | sort -u)

# The pilot runs on Python 3.9; `test-39` runs its tests there.
[private]
check-pilot:
    . scripts/versions.env && uvx --quiet "mypy@$MYPY_FOR_PYTHON_39_VERSION" --python-version 3.9 src/forestay_pilot
    uv run vermin --quiet --no-tips --violations -t=3.9- src/forestay_pilot

[private]
check-shell:
    uv run shellcheck -x $(git ls-files --cached --others --exclude-standard | xargs grep -Il -m1 '^#!/usr/bin/env bash') scripts/servers.d/*.bash $(grep -l "^#!/bin/sh" shim/* deploy/init/*/*)

# Words and turns that the glossary replaced, by Vale.
[private]
check-texts:
    scripts/texts

# Fix what the linters can fix.
fix:
    uv run ruff check --fix .
    uv run ruff format .

# Folders with tests on the real servers, each of which is collected by every process of a tier: name only what has some.
live_beside_folders := "tests/unit/adapters tests/contract tests/system/identity tests/live tests/system/openapi tests/system/papers tests/unit/apps/server tests/unit/bpel tests/unit/services tests/system/hostile tests/system/shim tests/system/tes tests/system/wes"
live_pairs_folders := "tests/system/insertion tests/live tests/system/papers tests/unit/apps/server tests/system/shim"
measured_tests := "tests/live tests/system/papers tests/unit/apps/test_start_up.py tests/unit/pilot/cache/test_cache_measures.py"

# What depends on the words of a release of Slurm: its states and columns, JSON, requeues, dependencies, arrays, what a job sees of the shim.
slurm_release_folders := "tests/contract/test_batch.py tests/live/test_slurm_dependencies.py tests/live/test_slurm_steering.py tests/system/shim/test_payload.py tests/system/shim/test_queued_again.py tests/system/shim/test_what_is_seen.py tests/unit/apps/server/insertion/test_watcher.py"
slurm_release_tests := "not psij and not base_id and not ten_thousand and not leaves_alone and not somebody_else and not cannot_be_written and not many_jobs and not cancelled_again"

# The first command: linters, and the tests of what decides (domain, formats, services, client). Under a minute on two cores.
quick:
    uv run ruff check -q .
    uv run ruff format -q --check .
    uv run lint-imports --no-logo >/dev/null || uv run lint-imports --no-logo
    FORESTAY_QUICK=1 uv run pytest -q -m "not live and not slow and not long" -n 2 --dist worksteal --ignore=tests/unit/client/executor tests/unit/client tests/unit/domain tests/unit/formats tests/unit/scripts tests/unit/services

# Write what the docs show of the command line: the reference page and the terminal pictures.
command-line:
    uv run python scripts/cli_reference.py
    uv run python scripts/cli_pictures.py

# Tests that need no server: all but those that measure (`just measured`), or those of a path, as in `just test tests/unit/formats`.
test *paths:
    uv run pytest -m "not live and not slow and not pages{{ if paths == "" { " and not measured" } else { "" } }}" -n {{ if paths == "" { beside } else { "2" } }} --dist loadfile {{ if paths == "" { "tests --ignore=tests/live --ignore=tests/system/openapi --ignore=tests/system/web --ignore=tests/system/wes" } else { "" } }} {{ paths }} || [ $? = 5 ]

# The pilot's tests on a real Python 3.9, which is fetched the first time. All but the benchmark's, which is no part of the pilot.
test-39 *args:
    scripts/servers install python39
    PYTHONPATH=src:. env -u UV_LOCKED uv run --quiet --no-project --isolated --python "$(scripts/servers program python39)" --with-requirements tests/unit/pilot/python39.txt \
      pytest -m "not live and not slow" -n 2 --dist loadfile --ignore=tests/unit/pilot/cache/test_cache_measures.py tests/unit/pilot {{ args }}

# The tests that need no server on a real Python 3.13, which is fetched the first time: all, or those of a path.
test-313 *paths:
    scripts/servers install python313
    UV_PROJECT_ENVIRONMENT=.venv-3.13 UV_PYTHON="$(scripts/servers program python313)" uv run --quiet --all-groups \
      pytest -m "not live and not slow and not pages and not measured" -n {{ if paths == "" { beside } else { "2" } }} --dist loadfile {{ if paths == "" { "tests --ignore=tests/live --ignore=tests/system/openapi --ignore=tests/system/web --ignore=tests/system/wes" } else { "" } }} {{ paths }}

# Property tests, the simulation and the fuzzer of rules with fresh seeds, which are printed; the gate always takes the same.
explore seed=`od -An -N4 -tu4 /dev/urandom | tr -d ' '`:
    @echo "seed {{ seed }}: repeat with 'just explore {{ seed }}'"
    FORESTAY_EXPLORE=1 uv run pytest -q -m "not live and not slow and not pages" -n 2 --hypothesis-seed={{ seed }} $(grep -rl 'from hypothesis' tests --include='test_*.py' | grep -v -e tests/system/web)
    uv run python -m tests.system.simulation --schedules 2000 --jobs 2 --first {{ seed }}
    uv run python -m tests.system.fuzz_rules --count 20000 --seed {{ seed }}

# Tests on the real servers (start them first with servers-up).
live: live-beside live-pairs measured

# Those of them that mostly wait, side by side.
live-beside *args:
    eval "$(scripts/servers env)" && uv run pytest -m "live and not slow and not pair and not measured and not other_store" -n {{ beside }} --dist loadfile {{ live_beside_folders }} {{ args }} || [ $? = 5 ]

# Those of them that kill processes and wait for short leases: two side by side at most.
live-pairs *args:
    eval "$(scripts/servers env)" && uv run pytest -m "live and not slow and pair and not measured" -n 2 --dist loadfile {{ live_pairs_folders }} {{ args }} || [ $? = 5 ]

# Tests whose result is a time or a rate, with or without servers, one after the other.
measured *args:
    eval "$(scripts/servers env)" && uv run pytest -m "measured and not slow" {{ measured_tests }} {{ args }} || [ $? = 5 ]

# What the gate shows on SQLite alone, on PostgreSQL and OpenSearch too.
stores *args:
    eval "$(scripts/servers env)" && uv run pytest -m "other_store and not slow" -n {{ beside }} --dist loadfile tests/unit/apps/server tests/unit/bpel tests/live tests/system/tes {{ args }}

# `forestay try` on the real Slurm and the real HTCondor (which wants root) after campaigns with known failures: causes and core-hours against the truth (6 minutes).
try-batch *args:
    scripts/servers start slurm --nodes 4
    scripts/servers start htcondor || echo "the test on HTCondor will fail" >&2
    eval "$(scripts/servers env)" && uv run pytest -s -m slow tests/live/test_try_slurm.py tests/live/test_try_htcondor.py {{ args }}

# Unmodified engines on the real Slurm and the real HTCondor (which wants root), through the shim and by plugins; those too that take minutes to fetch.
# `--slurm 24.11` or `--slurm 26.05` first: what of it depends on Slurm's words, on that release, in a root file system of its own (wants root).
[positional-arguments]
insertion *args:
    #!/usr/bin/env bash
    set -euo pipefail
    if [ "${1:-}" = --slurm ]; then
      export FORESTAY_SERVERS_DIR=${FORESTAY_SERVERS_DIR:-/var/lib/forestay/servers}-slurm-$2
      trap 'scripts/servers stop slurm' EXIT
      scripts/servers start slurm --version "$2" --nodes 10
      eval "$(scripts/servers env)"
      uv run pytest -m "not slow" -k "{{ slurm_release_tests }}" {{ slurm_release_folders }} "${@:3}"
    else
      scripts/servers start htcondor || echo "the tests on HTCondor will fail" >&2
      eval "$(scripts/servers env)"
      uv run pytest -k 'not kubernetes' tests/contract/test_batch.py tests/live/test_site_agent_htcondor.py tests/system/insertion tests/system/shim tests/unit/apps/server/insertion/test_watcher.py "$@"
    fi

# Pilots in the real control plane of Kubernetes, on simulated nodes, and what `deploy` has for it. Builds it and helm the first time (a quarter of an hour); minutes.
kubernetes *args:
    scripts/servers install helm
    scripts/servers start kubernetes
    eval "$(scripts/servers env)" && uv run pytest -m slow -k kubernetes tests/contract/test_batch.py tests/contract/test_kubernetes.py tests/live/test_site_agent_kubernetes.py {{ args }}

# What users of sbatch, Snakemake and Nextflow meet when something fails, with Forestay in front of two kinds of Slurm and without it; as root, hours. `--only TEXT` (again for more), `--resume`.
[positional-arguments]
insertion-matrix *args:
    uv run python -m tests.system.insertion.matrix "$@"
    uv run python scripts/insertion_matrix.py

# Compare 200 forms of Slurm's commands bare and through the shim, on a real Slurm. Minutes.
shim-forms:
    eval "$(scripts/servers env)" && uv run python -m tests.system.shim.forms

# Start the real servers that `live` needs, unless they run already.
servers-up:
    scripts/servers start postgres
    scripts/servers start opensearch --quick
    scripts/servers start temporal
    scripts/servers start s3
    scripts/servers start xrootd
    scripts/servers start slurm
    scripts/servers install prometheus bubblewrap sudo
    @echo 'for pytest by hand: eval "$(scripts/servers env)"' >&2

# Stop every server that scripts/servers started.
servers-down:
    scripts/servers stop

# Random schedules in which nothing may be shared: devices of a host, seats of licences, quotas.
exclusive *args:
    uv run python -m tests.system.simulation.exclusive {{ args }}

# A thousand real jobs on stand-in devices, while pilots are killed.
exclusive-jobs *args:
    uv run python -m tests.system.chaos.exclusive_jobs {{ args }}

# A counter of ten minutes over pilots of 20 s, some of which are killed: at most 5 % of its work may be repeated (half an hour).
checkpoints *args:
    uv run python -m tests.system.chaos.checkpoints {{ args }}

# kill -9, pauses, outages and lost answers on real processes, judged by an auditor: small (minutes) or full.
chaos size="small" *args:
    uv run python -m tests.system.chaos {{ size }} {{ args }}

# kill -9 of server, reconciler, orchestrator and Temporal at the named points of a run: `small`, or at every point.
chaos-runs *args:
    eval "$(scripts/servers env)" && uv run python -m tests.system.chaos.runs {{ args }}

# Everything that 1,000 seeded failures and as many exceptions in proportion make a domain write, compared with what was recorded (`compare`); `record` after a change that is meant.
pipeline do="compare" *args:
    uv run python -m tests.system.pipeline {{ do }} {{ args }}

# The files that a submission, a claim and a failure which a rule answers enter, in order.
walk *args:
    uv run python -m tests.system.walk {{ args }}

# kill -9 of who carries playbooks out, so many times in the middle of each action.
chaos-playbooks *args:
    eval "$(scripts/servers env)" && uv run python -m tests.system.chaos.playbooks {{ args }}

# Every failure at every stage by every submission pattern, on real processes: measured, and written to the docs.
[positional-arguments]
matrix *args:
    uv run python -m tests.system.matrix "$@"
    uv run python scripts/failure_matrix.py

# What each fault-tolerant pattern costs, for each way to submit: messages, time and processor time, with and without the failure in turns.
pattern-costs *args:
    uv run python -m tests.system.matrix.pattern_cost {{ args }}
    just proof

# What the metadata buys: text to read until a failure is understood, and completion of a mixed load, with and without.
metadata-value *args:
    uv run python -m tests.system.metadata {{ args }}
    just proof

# The hostile campaign: what somebody may try, what must happen, whether it did; writes docs/reference/hostile.md.
hostile *args:
    eval "$(scripts/servers env)" && uv run python -m tests.system.hostile {{ args }}

# The fault table: every test and campaign that its rows name, `small`, or `full` for a release (hours); `just faults list` says what is shown and what is not.
faults *args:
    eval "$(scripts/servers env)" && uv run python -m tests.system.faults {{ args }}
    just proof

# Stores that are killed, filled, split, lost and brought back: each test starts its own (minutes; small disks and networks of its own take root).
faults-stores *args:
    [ -n "${FORESTAY_TEST_TEMPORAL_SERVER:-}" ] || scripts/servers install temporal_server
    eval "$(scripts/servers env)" && uv run pytest -s -m slow tests/system/faults/test_own_opensearch.py tests/system/faults/test_own_postgres.py tests/system/faults/test_spoilt_ways.py tests/system/faults/test_store_states.py tests/system/faults/test_crowd.py tests/unit/pilot/staging/test_outputs.py tests/live/test_restored.py {{ args }}
    uv run python -m tests.system.linearizability 5000 --stores split

# Small faults, one at a time, in the code that keeps the promises: which of them the tests notice; resumable (at most two hours), writes the table to the docs. `--page` only writes it.
mutants *args:
    uv run python -m tests.system.mutants {{ args }}

# Train the second classifier of causes, and write its card; after a change of the labelled failures or of examples in packs.
train-second:
    uv run python -m scripts.train_second

# Write the page "Proof" and its pictures from bench/results.
proof *args:
    uv run python -m bench.report {{ args }}

# Version-checked histories on real stores under kills, checked for linearizability.
linearizability operations="100000" *args:
    uv run pytest -q -m slow tests/system/linearizability
    uv run python -m tests.system.linearizability {{ operations }} {{ args }}

# The formal model of claim, lease, generation and array steering, every state within its bounds: `full` (minutes; writes the counter-examples to the docs) or `small`, as the gate does.
model *args:
    uv run python -m tests.system.model {{ args }}

# The claim protocol under N random schedules; `just sim-again SEED` runs one of them once more.
sim n="10000":
    uv run python -m tests.system.simulation --schedules {{ n }} --jobs 2

# One schedule of the simulation again, with what it broke.
sim-again seed *args:
    uv run python -m tests.system.simulation --seed {{ seed }} {{ args }}

# Fuzzed rules are tried and walked, and an auditor looks for an act on an error: `just fuzz-rules --count 1000000`.
fuzz-rules *args:
    uv run python -m tests.system.fuzz_rules {{ args }}

# Everything about BPEL and JSDL, on the real servers and the real Slurm too.
bpel *args:
    eval "$(scripts/servers env)" && uv run pytest tests/unit/bpel tests/live/test_bpel_*.py {{ args }}

# Three domains in network namespaces, one of them on Slurm: lines cut for a minute, a domain killed for good (needs root; ten minutes).
peers *args:
    eval "$(scripts/servers env)" && uv run pytest -s tests/unit/domain/peers tests/unit/apps/server/peers/test_peers.py tests/live/test_peers.py tests/live/test_peer_domains.py {{ args }}

# Mutated documents for the readers of JSDL, BPEL and XPath: `just fuzz-xml 3600`.
fuzz-xml *args:
    uv run python -m tests.unit.bpel.fuzz {{ args }}

# Cases that Schemathesis makes of the description, against real processes: `just openapi-fuzz --cases 10000 --store opensearch`.
openapi-fuzz *args:
    eval "$(scripts/servers env)" && uv run python -m tests.system.openapi {{ args }}

# Write the interface's description to docs/reference/openapi.json, and the client's types from it.
openapi:
    uv run python scripts/openapi.py
    uv run python scripts/client_types.py

# Build the pages into the package; Node comes with the Python group `pages`.
pages:
    cd web && uv run npm ci --no-audit --no-fund --loglevel=error && uv run npm run --silent build

# Each test that was ever seen unsteady, so many times; one failure ends it (twenty rounds: half an hour).
rounds times="20" *args:
    eval "$(scripts/servers env)" && for round in $(seq {{ times }}); do echo "round $round"; uv run pytest -q -m "not slow" {{ args }} $(cat tests/once_unsteady.txt) || exit 1; done

# The pages in a real Chromium against a real server, store and Temporal.
pages-test *args:
    eval "$(scripts/servers env)" && uv run pytest -m "not slow" tests/system/web {{ args }}

# A server with 3,000 jobs, nineteen kinds of failure, a storm, approvals and regressions, to look at in a browser; prints a link that signs in.
filled-site:
    uv run python -m tests.system.web.filled_site

# The same as pages-test, and the pictures of the documents are taken anew.
pictures *args:
    eval "$(scripts/servers env)" && FORESTAY_PICTURES=1 uv run pytest -m "not slow" tests/system/web {{ args }}

# `forestay demo` played by a visitor in a real Chromium and once unattended: its pictures and what it prints, for the README and its tutorial (three minutes).
demo-recording:
    eval "$(scripts/servers env)" && FORESTAY_PICTURES=1 uv run pytest -m slow tests/system/web/test_demo.py
    eval "$(scripts/servers env)" && FORESTAY_TEMPORAL_PROGRAM="$FORESTAY_TEST_TEMPORAL_PROGRAM" uv run forestay demo --auto --report "$(mktemp -d)/forestay-demo.html" > docs/tutorials/demo.txt
    sed -i 's#/[^ ]*/forestay-demo#forestay-demo#' docs/tutorials/demo.txt
    uv run python scripts/cli_pictures.py

# Write the schema of flows to docs/reference/flow.schema.json.
flow-schema:
    uv run python scripts/flow_schema.py

# Write what the errors of stores mean to docs/reference/store-errors.md.
store-errors:
    uv run python scripts/store_errors.py

# Write what is stored, for how long and how much it takes, to docs/reference/retention.md (`just bench retention --store …` measures it).
retention:
    uv run python scripts/retention_page.py

# Write the schema of playbooks to docs/reference/playbook.schema.json.
playbook-schema:
    uv run python scripts/playbook_schema.py

# Write the schema of files of rules to docs/reference/rules.schema.json.
rules-schema:
    uv run python scripts/rules_schema.py

# Each finding of a trial from outside, the test that guards it, and its newest result; `--run` runs them first.
findings *args:
    eval "$(scripts/servers env)" && uv run python scripts/findings.py {{ args }}

# Where the gate's time goes: tiers, the twenty most expensive files, and what changed since the run kept in the tree.
ci-times *args:
    uv run python scripts/ci_times.py {{ args }}

# The papers' claims that the newest run of the gate has not proven; `--keep JUNIT` notes the long proofs that passed there.
ledger *args:
    uv run python scripts/ledger.py {{ args }}

# Measure: shim, neighbours, claim_efficiency, contention, scale (depth, servers, both), flow_scale, streaming, flow_suspensions, durable, start_latency, chunks, executor, lost_pilots, flow_beside, reuse_beside, conditions, tracing, rules, staging, pilots (simulate, figures, real, scale), opensearch_adapter, sql_adapter.
bench name *args:
    eval "$(scripts/servers env)" && uv run python -m bench.{{ name }} {{ args }}

# Six benchmarks of the paths that change most, at a size that proves only that they run.
bench-smoke:
    BENCH_SMOKE=1 just bench claim_efficiency --rounds 1 --jobs 3000 --singles 200
    BENCH_SMOKE=1 just bench scale both --few 2000 --many 6000 --queued 3000 --jobs 1000 --rounds 1 --servers 2
    BENCH_SMOKE=1 just bench flow_scale --shared --jobs 1000 --no-kill
    BENCH_SMOKE=1 just bench executor --calls 200 --rounds 1
    BENCH_SMOKE=1 just bench rules --rules 1000 --decisions 200 --added 3
    BENCH_SMOKE=1 just bench shim --calls 50

# The others at such a size.
bench-smoke-rest:
    BENCH_SMOKE=1 just bench contention --rounds 1 --jobs 1500
    BENCH_SMOKE=1 just bench streaming --shared --elements 600 --rounds 1
    BENCH_SMOKE=1 just bench durable --shared --jobs 600 --bare 10 --rounds 1
    BENCH_SMOKE=1 just bench start_latency --shared --rounds 2
    BENCH_SMOKE=1 just bench one_job --jobs 100 --rounds 1 --stores sqlite
    BENCH_SMOKE=1 just bench chunks --jobs 2000 --rounds 1
    BENCH_SMOKE=1 just bench tracing --jobs 200 --rounds 1
    BENCH_SMOKE=1 just bench storm --shared --jobs 300 --watch 10
    BENCH_SMOKE=1 just bench replay --incidents 1000 --store sqlite
    BENCH_SMOKE=1 just bench prune --store sqlite --jobs 1000 --beside 500 --rounds 1
    BENCH_SMOKE=1 just bench retention --jobs 200
    just bench staging --smoke
    just bench cache --quick
    BENCH_SMOKE=1 just bench proxy --calls 5 --rounds 1 --crowd 10 --tasks 4
    BENCH_SMOKE=1 just bench pilots simulate --seeds 1 --no-keep

# The files of deploy/ by their own tools: systemd-analyze, helm lint and the drawn manifests. Builds helm the first time (minutes).
deploy-check *args:
    scripts/servers install helm
    uv run pytest tests/system/deploy -m "not live" {{ args }}

# The dashboard in a real Grafana, each panel asked of a real Prometheus. Builds Grafana the first time (7 CPU-minutes).
grafana *args:
    scripts/servers install prometheus grafana
    uv run pytest -m slow tests/system/deploy/test_grafana.py {{ args }}

# The dashboard against Grafana's own published types (fetched); the compiler is that of the pages.
dashboard-check:
    . scripts/versions.env && GRAFANA_SCHEMA_VERSION="$GRAFANA_SCHEMA_VERSION" uv run python scripts/grafana_schema.py

# Jobs in containers of the real Podman and the real Apptainer, with images of a real registry, and what a container costs; as root, three minutes. Installs what is missing.
containers *args:
    command -v podman skopeo runc docker-registry bwrap >/dev/null || apt-get install -y --no-install-recommends podman skopeo runc docker-registry bubblewrap
    scripts/servers install apptainer
    FORESTAY_TEST_APPTAINER="$(scripts/servers program apptainer)" uv run pytest -m slow tests/unit/pilot/containers {{ args }}

# The CPU and wall time of a job in a container beside a bare one, in turns, by each runtime that is here.
containers-cost *args:
    FORESTAY_TEST_APPTAINER="$(scripts/servers program apptainer)" uv run python -m bench.containers {{ args }}

# The site profile: Temporal's server and the jobs on one PostgreSQL, and a flow that is recovered on it. Builds Temporal the first time (13 CPU-minutes).
site-profile *args:
    [ -n "${FORESTAY_TEST_TEMPORAL_SERVER:-}" ] || scripts/servers install temporal_server
    eval "$(scripts/servers env)" && uv run pytest -m slow tests/live/test_site_profile.py {{ args }}

# The release before and this one on one store and one Temporal: forward, beside each other, and back. Builds its wheel the first time.
upgrade *args:
    eval "$(scripts/servers env)" && uv run pytest -m slow tests/system/upgrade {{ args }}

# Lists of everything that a release is made of (CycloneDX), and its pinned requirements by digest, into dist/.
sbom:
    uv run python scripts/supply_chain.py sbom dist

# Known vulnerabilities in what the lock files pin: fails on any; where no database can be reached it says so, and fails with `--must-run`.
audit *args:
    uv run python scripts/supply_chain.py audit {{ args }}

# Packages for Debian 12, Debian 13 and distributions with rpm (`just packages debian12` for one), into dist/packages. Builds nfpm the first time.
packages *targets:
    scripts/servers install nfpm
    uv run python scripts/packages.py {{ targets }}

# The packages made twice with equal digests, and each installed into a bare root file system, started, used and removed: as root, with the tutorial's first ten minutes in it (minutes).
packages-test *args:
    scripts/servers install nfpm roots temporal rpm
    uv run pytest -s -m "slow or not slow" tests/system/installs/test_packages.py {{ args }}

# The images of deploy, built on a local base: the container's started with Podman, its health checked, the tutorial's first ten minutes typed in it; the services of the compose file with a pilot of the Apptainer image: as root (minutes).
images *args:
    scripts/servers install roots temporal podman apptainer
    scripts/servers start postgres
    scripts/servers start temporal
    eval "$(scripts/servers env)" && FORESTAY_TEST_APPTAINER="$(scripts/servers program apptainer)" uv run pytest -s -m "slow or not slow" tests/system/installs/test_images.py {{ args }}

# The conda recipe, rendered by rattler-build (fetched); conda-forge is not asked for the packages that it names.
conda-recipe:
    . scripts/versions.env && env -u UV_LOCKED uv run --quiet --no-project --isolated --with "py-rattler-build==$RATTLER_BUILD_VERSION" \
      python -c 'import sys; import rattler_build as build; recipe = build.Stage0Recipe.from_file("deploy/conda/recipe.yaml"); sys.exit(len(recipe.render(build.VariantConfig(), build.RenderConfig())) != 1)'
    uv run pytest -q tests/system/deploy/test_conda.py

# A new user's first ten minutes: the tutorial's commands in a clean environment.
quickstart:
    eval "$(scripts/servers env)" && uv run python -m tests.system.walks.first_ten_minutes

# What `pip install forestay` brings, in a clean environment: its size, and every command in it. Part of `quickstart`.
small-install:
    uv run python -m tests.system.walks.small_install

# Two builds of the last commit, in two folders: source package and wheel with equal digests.
equal-builds:
    uv run python -m tests.system.walks.equal_builds

# The tutorials of the docs, typed as they stand there; one of them installs Snakemake.
tutorials *args:
    eval "$(scripts/servers env)" && uv run pytest -m slow tests/system/walks/test_tutorials.py {{ args }}

# A release into a folder: changelog, signed tag, packages, lists of parts, docs, signed digests. `--dry-run FOLDER` with a test key, `--key FILE FOLDER` with the owner's.
release *args:
    uv run python scripts/release.py {{ args }}

# The dry run of a release, with the pages that were built here, into a folder that is removed.
release-check:
    folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && uv run python scripts/release.py --dry-run --built-pages "$folder/release"

# Build the pages into docs/_build/html, with a search; a warning is an error, and so is a link that leads nowhere.
docs:
    uv run --group docs sphinx-build -q -W --keep-going -b html docs docs/_build/html
    uv run python scripts/check_site.py
    @echo 'docs/_build/html/index.html' >&2

# Everything, as the continuous integration does it.
ci:
    bash .ci/run
