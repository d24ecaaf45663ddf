# HTCondor: one master with collector, negotiator, schedd and a startd, as an ordinary user has it for himself. It comes from another release of Debian
# and runs in its root file system. HTCondor takes no jobs of root: inside, root of this machine bears the number of an ordinary user.
# The collector listens at PORT, the others wherever there is room.

htcondor_dir() { echo "$STATE/htcondor"; }
htcondor_log() { echo "$STATE/htcondor/log/MasterLog"; }
HTCONDOR_USER="--setenv USER forestay --setenv LOGNAME forestay"

install_htcondor() {
  install_in "$HTCONDOR_SUITE" htcondor minihtcondor python3
  local users; users=$(rootfs_folder "$HTCONDOR_SUITE")/etc/passwd
  grep -q '^forestay:' "$users" || echo 'forestay:x:1000:1000::/:/bin/sh' >>"$users"
}

htcondor_configure() {
  local dir; dir=$(htcondor_dir)
  mkdir -p "$dir"/{log,spool,execute,lock,run,cred}
  cat >"$dir/condor_config" <<C
RELEASE_DIR = /usr
LOCAL_DIR = $dir
LOG = $dir/log
SPOOL = $dir/spool
EXECUTE = $dir/execute
LOCK = $dir/lock
RUN = $dir/run
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:$(cat "$dir/port")
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
USE_SHARED_PORT = False
ENABLE_IPV6 = False
UID_DOMAIN = forestay.test
FILESYSTEM_DOMAIN = forestay.test
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_ADMINISTRATOR = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD
NUM_CPUS = $(cat "$dir/cpus")
MEMORY = 4096
use FEATURE : PartitionableSlot
BASE_CGROUP =
CGROUP_MEMORY_LIMIT_POLICY = none
MOUNT_UNDER_SCRATCH =
MOUNT_PRIVATE_DEV_SHM = False
DISCARD_SESSION_KEYRING_ON_STARTUP = False
RUNBENCHMARKS = False
STARTER_UPDATE_INTERVAL = 2
STARTER_INITIAL_UPDATE_INTERVAL = 1
PROCD_MAX_SNAPSHOT_INTERVAL = 1
POLLING_INTERVAL = 1
UPDATE_INTERVAL = 5
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 1
SCHEDD_INTERVAL = 2
PERIODIC_EXPR_INTERVAL = 2
START = True
SUSPEND = False
PREEMPT = False
KILL = False
# Without control groups HTCondor measures what jobs use and holds those that use more than they asked for, as sites set it up.
use POLICY : Hold_If_Memory_Exceeded
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
DAGMAN_SUBMIT_DELAY = 0
# DAGMan refuses logs in /tmp, where tests have their folders.
DAGMAN_USE_STRICT = 0
C
  local program
  for program in submit submit_dag q history rm hold release status wait version config_val; do
    # shellcheck disable=SC2086
    in_rootfs_as_user "$HTCONDOR_SUITE" $HTCONDOR_USER --setenv CONDOR_CONFIG "$dir/condor_config" -- "/usr/bin/condor_$program"
    rootfs_client "$dir/bin/condor_$program" "condor_$program"
  done
}

htcondor_launch() {
  local dir; dir=$(htcondor_dir)
  if alive "$dir/server.pid"; then return 0; fi
  # shellcheck disable=SC2086
  in_rootfs_as_user "$HTCONDOR_SUITE" $HTCONDOR_USER --chdir "$dir" -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME="$dir" USER=forestay \
    CONDOR_CONFIG="$dir/condor_config" condor_master -f
  DETACH_AS=__as_self detach "$dir/server.pid" "$dir/log/master.out" "${ROOTFS_COMMAND[@]}"
}

htcondor_check() {
  alive "$(htcondor_dir)/server.pid" || return 2
  # A slot that takes jobs, and a schedd.
  [ -n "$(timeout 20 "$(htcondor_dir)/bin/condor_status" -af Name 2>/dev/null)" ] &&
    [ -n "$(timeout 20 "$(htcondor_dir)/bin/condor_status" -schedd -af Name 2>/dev/null)" ] || return 1
}

htcondor_wait() { until_ready HTCondor "$(htcondor_log)" htcondor_check; }

htcondor_prepare() { # under the lock
  local port=$1 fresh=$2 cpus=$3 dir first; dir=$(htcondor_dir)
  if [ "$fresh" = yes ]; then htcondor_stop; rm -rf "$dir"; fi
  mkdir -p "$dir"
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "HTCondor is already running at port $(cat "$dir/port")"
    return 0
  fi
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 19618)}
  while ! port_free "$first"; do
    [ -z "$port" ] || die "port $port is taken; choose another with --port"
    first=$((first + 10))
  done
  echo "$first" >"$dir/port"
  echo "${cpus:-8}" >"$dir/cpus"
  htcondor_configure
  htcondor_launch
}

htcondor_start() { # htcondor_start PORT FRESH CPUS
  local since; since=$(now)
  install_htcondor
  with_lock htcondor_prepare "$@"
  htcondor_wait
  say "HTCondor answers at 127.0.0.1:$(cat "$(htcondor_dir)/port") after $(seconds_since "$since")"
}

htcondor_stop() {
  local dir p; dir=$(htcondor_dir)
  if [ -x "$dir/bin/condor_rm" ] && alive "$dir/server.pid"; then timeout 20 "$dir/bin/condor_rm" -all >/dev/null 2>&1 || true; fi
  # bwrap is the parent of condor_master and hands no signal on.
  p=$(pid_of "$dir/server.pid" && true) && p=$(pgrep -P "$p" -x condor_master || true)
  if [ -n "$p" ]; then kill -TERM "$p"; fi
  local i
  for ((i = 0; i < 600; i++)); do alive "$dir/server.pid" || break; sleep 0.1; done
  halt "$dir/server.pid" KILL
}
