# A server process: started apart from the terminal, known by pid and start time, stopped by pid only.

READY_SECONDS=${FORESTAY_SERVERS_TIMEOUT:-600}

started_at() { # clock ticks since boot, so that a reused pid is never taken for ours
  local stat; stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }
  # shellcheck disable=SC2086
  set -- $stat
  [ "$1" != Z ] && echo "${20}"
}

alive() { # alive PIDFILE
  local pid ticks
  # Without ticks it died before they could be read.
  [ -s "$1" ] && read -r pid ticks <"$1" && [ -n "$ticks" ] && [ "$(started_at "$pid")" = "$ticks" ]
}

pid_of() { local pid _; alive "$1" && read -r pid _ <"$1" && echo "$pid"; }

detach() { # detach PIDFILE LOGFILE COMMAND…
  local pidfile=$1 log=$2 pid; shift 2
  rm -f "$pidfile" "$pidfile.new"
  # The shell writes its own pid and then becomes the server: no guessing which child is which.
  # shellcheck disable=SC2016
  setsid bash -c 'echo $$ >"$1"; shift; exec "$@"' - "$pidfile.new" \
    "${BASH:-bash}" "$HERE/servers" "${DETACH_AS:-__as_server}" "$@" >>"$log" 2>&1 </dev/null 9>&- &
  while [ ! -s "$pidfile.new" ]; do sleep 0.02; done
  pid=$(cat "$pidfile.new")
  echo "$pid $(started_at "$pid")" >"$pidfile"
  rm -f "$pidfile.new"
}

halt() { # halt PIDFILE SIGNAL: ask, wait two minutes, then insist
  local pid i
  pid=$(pid_of "$1") || { rm -f "$1"; return 0; }
  kill -"$2" "$pid"
  for ((i = 0; i < 1200; i++)); do alive "$1" || break; sleep 0.1; done
  if alive "$1"; then say "process $pid did not stop; killed"; kill -9 "$pid"; fi
  rm -f "$1"
}

kill_now() { # kill_now PIDFILE: kill -9, and return when the process is gone
  local pid
  pid=$(pid_of "$1") || die "no process to kill"
  kill -9 "$pid"
  while alive "$1"; do sleep 0.02; done
}

port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

ports_free() { # ports_free FIRST COUNT
  local p
  for ((p = $1; p < $1 + $2; p++)); do port_free "$p" || return 1; done
}

now() { date +%s.%N; }
seconds_since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", b - a }'; }

until_ready() { # until_ready WHAT LOGFILE CHECK…: true soon, or a plain word about what went wrong
  local what=$1 log=$2 deadline=$((SECONDS + READY_SECONDS)) rc; shift 2
  while :; do
    rc=0; "$@" || rc=$?
    case $rc in
      0) return 0 ;;
      2) break ;; # the process is dead: waiting cannot help
    esac
    [ "$SECONDS" -lt "$deadline" ] || break
    sleep 0.2
  done
  say "$what is not ready; the end of $log:"
  tail -n 40 "$log" >&2 || true
  return 1
}
