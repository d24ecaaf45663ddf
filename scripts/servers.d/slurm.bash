# Slurm with accounting: many virtual nodes on one machine, which all bear this host's address and differ by their ports.
# Slurm runs a job as the user who submitted it, so unlike the other servers it runs as the user who starts it, root included.
# Another release of Slurm than the system's runs in the root file system of another Debian, and its commands are in the folder `bin`.
# Parts: munge, db (MariaDB on a socket), dbd, ctld, d1 … dN. Ports: ctld at PORT, dbd at PORT+1, node I at PORT+1+I.

# shellcheck disable=SC2153
slurm_dir() { echo "$STATE/slurm"; }
slurm_conf() { echo "$STATE/slurm/etc/slurm.conf"; }
slurm_pidfile() { echo "$STATE/slurm/run/$1.pid"; }
slurm_port() { cat "$STATE/slurm/port"; }
slurm_suite() { # the release of Debian that has the Slurm that was asked for; nothing: this system's own
  case $(cat "$(slurm_dir)/version" 2>/dev/null) in
    24.11) echo "$SLURM_24_11_SUITE" ;;
    26.05) echo "$SLURM_26_05_SUITE" ;;
  esac
}
slurm_mysql() { mariadb --no-defaults -S "$STATE/slurm/db/my.sock" "$@"; }

SLURM_COMMANDS="sbatch squeue sacct scontrol scancel srun salloc sinfo sacctmgr sstat sdiag sprio sattach sbcast"

install_slurm_version() { # install_slurm_version VERSION
  case $1 in
    '') ;;
    24.11) install_in "$SLURM_24_11_SUITE" slurmctld slurmd slurm-client slurmdbd python3 ;;
    26.05) install_in "$SLURM_26_05_SUITE" slurmctld slurmd slurm-client slurmdbd python3 ;;
    *) die "--version is 24.11 or 26.05; without it the system's own is taken" ;;
  esac
}

slurm_clients() { # the commands of another release, for a PATH
  local program suite folder; suite=$(slurm_suite) folder=$(slurm_dir)
  rm -rf "${folder:?}/bin"
  [ -n "$suite" ] || return 0
  for program in $SLURM_COMMANDS; do
    in_rootfs "$suite" "/usr/bin/$program"
    rootfs_client "$folder/bin/$program" "$program"
  done
}

install_slurm() {
  local missing=() pair
  for pair in slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge slurmdbd:slurmdbd mariadbd:mariadb-server socat:socat ip:iproute2; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
  local version; version=$(PATH=$PATH:/usr/sbin slurmctld -V | sed 's/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/')
  [ "$(printf '%s\n' "$SLURM_MINIMUM" "$version" | sort -V | head -1)" = "$SLURM_MINIMUM" ] ||
    die "Slurm $version is too old; $SLURM_MINIMUM or newer is needed"
}

slurm_configure() {
  local dir port nodes cpus me host i
  dir=$(slurm_dir) port=$(slurm_port) nodes=$(cat "$dir/nodes") cpus=$(cat "$dir/cpus") me=$(id -un) host=$(hostname -s)
  mkdir -p "$dir"/{etc,munge,state,spool,log,run,db}
  chmod 755 "$dir" "$dir/run"; chmod 700 "$dir/munge" "$dir/state"
  own "$dir/db"
  if [ ! -e "$dir/munge/munge.key" ]; then
    ( umask 077; head -c 128 /dev/urandom >"$dir/munge/munge.key" )
  fi
  if [ "$(cat "$dir/cgroups")" = yes ]; then
    slurm_cgroups >"$dir/etc/cgroup.conf"
  elif [ -n "$(slurm_suite)" ]; then
    echo CgroupPlugin=disabled >"$dir/etc/cgroup.conf" # it would look for systemd
  fi
  slurm_clients
  rm -f "$dir/etc/slurmdbd.conf"
  ( umask 077; cat >"$dir/etc/slurmdbd.conf" <<C
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 1))
SlurmUser=$me
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/own-dbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
C
  )
  {
    cat <<C
ClusterName=forestay
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
CredType=cred/munge
SlurmUser=$me
SlurmdUser=$me
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/own-ctld
SlurmdPidFile=$dir/run/own-%n
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
$(slurm_limits)
JobAcctGatherFrequency=3
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 1))
AccountingStoragePass=$dir/run/munge.sock
AccountingStorageEnforce=associations
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
DefMemPerCPU=400
MpiDefault=none
SwitchType=switch/none
InactiveLimit=0
KillWait=2
MinJobAge=300
MessageTimeout=10
SlurmctldTimeout=30
SlurmdTimeout=$(cat "$dir/silence")
Waittime=0
MaxJobCount=100000
MaxArraySize=20001
PropagateResourceLimits=NONE
TreeWidth=65533
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
C
    for ((i = 1; i <= nodes; i++)); do
      echo "NodeName=n$i NodeAddr=127.0.0.1 NodeHostname=$host Port=$((port + 1 + i)) CPUs=$cpus RealMemory=2000 State=UNKNOWN"
    done
    echo "PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP"
  } >"$dir/etc/slurm.conf"
}

slurm_limits() { # who holds jobs to their memory: the kernel, or Slurm's own accounting, which ends the whole step
  if [ "$(cat "$(slurm_dir)/cgroups")" = yes ]; then
    cat <<C
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
C
  else
    cat <<C
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill,UsePss
C
  fi
}

slurm_cgroups() {
  cat <<C
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedRAMSpace=100
C
}

slurm_detach() { # slurm_detach PART COMMAND…
  local dir part=$1; dir=$(slurm_dir); shift
  DETACH_AS=__as_self detach "$(slurm_pidfile "$part")" "$dir/log/$part.out" env -i PATH="$PATH:/usr/sbin:/sbin" LANG=C.UTF-8 \
    HOME=/ USER="$(id -un)" SLURM_CONF="$(slurm_conf)" MYSQL_UNIX_PORT="$dir/db/my.sock" "$@"
}

slurm_daemon() { # slurm_daemon COMMAND…: sets ROOTFS_COMMAND to the words that run one of Slurm's daemons
  if [ -n "$(slurm_suite)" ]; then in_rootfs "$(slurm_suite)" "$@"; else ROOTFS_COMMAND=("$@"); fi
}

# slurmdbd listens on every address, which cannot be configured. So it runs in a network of its own, and relays over
# Unix sockets join its loopback with ours: one for those who ask it, one for what it tells slurmctld.
slurm_launch_dbd() {
  local dir port; dir=$(slurm_dir) port=$(slurm_port)
  if ! unshare -n ip link set lo up 2>/dev/null; then
    say "no network namespace to be had: slurmdbd listens on every address of this machine at port $((port + 1))"
    slurm_daemon slurmdbd -D
    slurm_detach dbd "${ROOTFS_COMMAND[@]}"
    return
  fi
  rm -f "$dir/run/to-dbd" "$dir/run/to-ctld"
  # The relays die with slurmdbd, so that its port is closed when it is killed.
  slurm_daemon slurmdbd -D
  # shellcheck disable=SC2016
  slurm_detach dbd bash -c '
    relay() { setpriv --pdeathsig KILL socat "$1,fork" "$2" & }
    relay "TCP-LISTEN:$(($2 + 1)),bind=127.0.0.1,reuseaddr" "UNIX-CONNECT:$1/run/to-dbd"
    relay "UNIX-LISTEN:$1/run/to-ctld,mode=600" "TCP:127.0.0.1:$2"
    export -f relay
    exec unshare -n bash -c '"'"'
      ip link set lo up
      ip addr add 192.0.2.1/32 dev lo # with 127.0.0.1 alone the resolver gives slurmdbd no address to listen on
      relay "UNIX-LISTEN:$1/run/to-dbd,mode=600" "TCP:127.0.0.1:$(($2 + 1))"
      relay "TCP-LISTEN:$2,bind=127.0.0.1,reuseaddr" "UNIX-CONNECT:$1/run/to-ctld"
      exec "${@:3}"'"'"' dbd "$@"' dbd "$dir" "$port" "${ROOTFS_COMMAND[@]}"
}

slurm_launch_db() {
  local dir; dir=$(slurm_dir)
  if [ ! -e "$dir/db/initialised" ]; then
    rm -rf "$dir/db/data"
    ( cd / && unprivileged mariadb-install-db --no-defaults --datadir="$dir/db/data" \
        --auth-root-authentication-method=normal --skip-test-db ) >"$dir/log/install-db.log" 2>&1 ||
      { tail -n 5 "$dir/log/install-db.log" >&2; die "mariadb-install-db failed"; }
    touch "$dir/db/initialised"
  fi
  detach "$(slurm_pidfile db)" "$dir/log/db.out" env -i PATH="$PATH:/usr/sbin" mariadbd --no-defaults --datadir="$dir/db/data" \
    --skip-networking --socket="$dir/db/my.sock" --pid-file="$dir/db/own-pid" --innodb-buffer-pool-size=64M \
    --innodb-lock-wait-timeout=900
}

slurm_launch() { # slurm_launch PART, if it is not running
  local dir part=$1; dir=$(slurm_dir)
  if alive "$(slurm_pidfile "$part")"; then return 0; fi
  case $part in
    munge)
      slurm_detach munge munged --foreground --force --key-file="$dir/munge/munge.key" --socket="$dir/run/munge.sock" \
        --pid-file="$dir/run/own-munge" --log-file="$dir/munge/munged.log" --seed-file="$dir/munge/munged.seed" --num-threads=2 ;;
    db) slurm_launch_db ;;
    dbd) slurm_launch_dbd ;;
    ctld)
      # A young controller without saved state gives up when it cannot read its associations.
      if alive "$(slurm_pidfile dbd)"; then until_ready slurmdbd "$dir/log/slurmdbd.log" slurm_check_dbd; fi
      slurm_daemon slurmctld -D -f "$(slurm_conf)"
      slurm_detach ctld "${ROOTFS_COMMAND[@]}" ;;
    d*)
      mkdir -p "$dir/spool/n${part#d}"
      slurm_daemon slurmd -D -f "$(slurm_conf)" -N "n${part#d}"
      slurm_detach "$part" "${ROOTFS_COMMAND[@]}" ;;
  esac
}

slurm_nodes() { local i; for ((i = 1; i <= $(cat "$(slurm_dir)/nodes"); i++)); do echo "d$i"; done; }

slurm_prepare() { # under the lock
  local nodes=$1 cpus=$2 port=$3 fresh=$4 silence=$5 cgroups=$6 version=$7 dir first part
  dir=$(slurm_dir)
  # Nodes of one machine would share the control groups of jobs.
  if [ "$cgroups" = yes ]; then
    [ "${nodes:-1}" = 1 ] || die "--cgroups goes with one node"
    [ -d /sys/fs/cgroup/memory ] || die "--cgroups needs version 1 of the memory controller at /sys/fs/cgroup/memory"
    nodes=1
  fi
  if [ "$fresh" = yes ]; then slurm_stop; rm -rf "$dir"; fi
  mkdir -p "$dir/run"
  if slurm_any_alive; then
    [ -z "$port" ] || [ "$port" = "$(slurm_port)" ] || die "Slurm is already running at port $(slurm_port)"
    [ "$version" = "$(cat "$dir/version" 2>/dev/null)" ] || die "Slurm is already running, another release: $(cat "$dir/version")"
    [ "$cgroups" = "$(cat "$dir/cgroups")" ] || die "Slurm is already running, with --cgroups: $(cat "$dir/cgroups")"
    [ -z "$nodes" ] || [ "$nodes" = "$(cat "$dir/nodes")" ] || die "Slurm is already running with $(cat "$dir/nodes") nodes"
  else
    echo "$cgroups" >"$dir/cgroups"
    # The tables of one release's accounting are not another's.
    if [ "$version" != "$(cat "$dir/version" 2>/dev/null)" ]; then rm -rf "$dir/db" "$dir/state"; fi
    echo "$version" >"$dir/version"
    echo "${nodes:-$(cat "$dir/nodes" 2>/dev/null || echo 10)}" >"$dir/nodes"
    echo "${cpus:-$(cat "$dir/cpus" 2>/dev/null || echo 4)}" >"$dir/cpus"
    echo "${silence:-$(cat "$dir/silence" 2>/dev/null || echo 60)}" >"$dir/silence"
    first=${port:-$(cat "$dir/port" 2>/dev/null || echo 16817)}
    while ! ports_free "$first" $(($(cat "$dir/nodes") + 2)); do
      [ -z "$port" ] || die "port $port or a neighbour is taken; choose another with --port"
      first=$((first + 100))
    done
    echo "$first" >"$dir/port"
    slurm_configure
  fi
  for part in munge db; do slurm_launch $part; done
  until_ready MariaDB "$dir/log/db.out" slurm_check_db
  slurm_mysql -e "create database if not exists slurm_acct; create user if not exists slurm@localhost identified by 'slurm';
    grant all on slurm_acct.* to slurm@localhost;"
  slurm_launch dbd
  until_ready slurmdbd "$dir/log/slurmdbd.log" slurm_check_dbd
  slurm_accounts
  for part in ctld $(slurm_nodes); do slurm_launch "$part"; done
}

slurm_accounts() { # the cluster, one account and this user in it; nothing where they are known already
  local SLURM_CONF; SLURM_CONF=$(slurm_conf); export SLURM_CONF
  sacctmgr -Q -i add cluster forestay >/dev/null 2>&1 || true
  sacctmgr -Q -i add account pilots Cluster=forestay >/dev/null 2>&1 || true
  sacctmgr -Q -i add user "$(id -un)" Account=pilots >/dev/null 2>&1 || true
  [ -n "$(sacctmgr -n -P list association user="$(id -un)" account=pilots format=user)" ] || die "Slurm's accounting took no account"
}

slurm_any_alive() { local p; for p in "$(slurm_dir)"/run/*.pid; do if alive "$p"; then return 0; fi; done; return 1; }

slurm_check_db() {
  alive "$(slurm_pidfile db)" || return 2
  slurm_mysql -e 'select 1' >/dev/null 2>&1 || return 1
}

slurm_check_dbd() {
  alive "$(slurm_pidfile dbd)" || return 2
  SLURM_CONF=$(slurm_conf) timeout 20 sacctmgr -n -P list cluster >/dev/null 2>&1 || return 1
}

slurm_check() { # do the controller and every living node answer?
  local part state living=0
  for part in munge db dbd ctld; do alive "$(slurm_pidfile $part)" || return 2; done
  for part in $(slurm_nodes); do if alive "$(slurm_pidfile "$part")"; then living=$((living + 1)); fi; done
  state=$(SLURM_CONF=$(slurm_conf) timeout 20 sinfo -h -N -o %T 2>/dev/null) || return 1
  # A star behind the state: it does not respond.
  [ "$(grep -c '^\(idle\|mixed\|allocated\|completing\|draining\|drained\)$' <<<"$state")" -ge "$living" ] || return 1
  slurm_check_dbd
}

slurm_wait() { until_ready Slurm "$(slurm_dir)/log/slurmctld.log" slurm_check; }

slurm_start() { # slurm_start NODES CPUS PORT FRESH SILENCE CGROUPS VERSION
  local since; since=$(now)
  install_slurm
  install_slurm_version "$7"
  PATH=$(slurm_dir)/bin:$PATH:/usr/sbin:/sbin
  with_lock slurm_prepare "$@"
  slurm_wait
  say "Slurm answers at 127.0.0.1:$(slurm_port) with $(cat "$(slurm_dir)/nodes") nodes after $(seconds_since "$since")"
}

slurm_stop() {
  local dir part i p; dir=$(slurm_dir)
  local PATH=$dir/bin:$PATH
  if alive "$(slurm_pidfile ctld)"; then # the jobs first: what runs in them would outlive every daemon
    local SLURM_CONF; SLURM_CONF=$(slurm_conf); export SLURM_CONF
    timeout 20 scancel --user="$(id -un)" >/dev/null 2>&1 || true
    for ((i = 0; i < 100; i++)); do [ -n "$(timeout 10 squeue -h 2>/dev/null)" ] || break; sleep 0.1; done
  fi
  for p in "$dir"/run/d[0-9]*.pid; do halt "$p" TERM; done
  for part in ctld dbd db munge; do halt "$(slurm_pidfile $part)" TERM; done
  for p in $(slurm_left); do kill -9 "$p" 2>/dev/null || true; done
}

slurm_left() { # what still runs in the jobs of this Slurm, after a node or the controller was killed
  local p dir conf; dir=$(slurm_dir) conf=$(slurm_conf)
  for p in /proc/[0-9]*; do
    if [ "$(cat "$p/comm" 2>/dev/null)" = slurmstepd ]; then
      readlink "$p"/fd/* 2>/dev/null | grep -qF "$dir/" && echo "${p#/proc/}"
    elif tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -c -x -e "SLURM_CONF=$conf" -e 'SLURMD_NODENAME=n[0-9]*' | grep -qx 2; then
      echo "${p#/proc/}"
    fi
  done 2>/dev/null
  return 0
}

slurm_status() {
  local part
  for part in munge db dbd ctld $(slurm_nodes); do
    printf 'slurm %s\t%s\t127.0.0.1:%s\n' "$part" "$(pid_of "$(slurm_pidfile "$part")" || echo dead)" "$(slurm_port_of "$part")"
  done
}

slurm_port_of() {
  case $1 in
    ctld) slurm_port ;;
    dbd) echo $(($(slurm_port) + 1)) ;;
    d[0-9]*) echo $(($(slurm_port) + 1 + ${1#d})) ;;
    *) echo - ;;
  esac
}
