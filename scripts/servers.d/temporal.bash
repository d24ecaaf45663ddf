# Temporal's development server, one process with its own SQLite file.

temporal_dir() { echo "$STATE/temporal"; }
temporal_program() { echo "$CACHE/temporal-$TEMPORAL_CLI_VERSION/temporal"; }

temporal_launch() { # if it is not running
  local dir; dir=$(temporal_dir)
  if alive "$dir/server.pid"; then return 0; fi
  local -a file=()
  if [ ! -e "$dir/in-memory" ]; then file=(--db-filename "$dir/data/temporal.db"); fi
  detach "$dir/server.pid" "$dir/server.log" env -i PATH="$PATH" LANG=C.UTF-8 HOME="$dir/data" \
    "$(temporal_program)" server start-dev --ip 127.0.0.1 --port "$(cat "$dir/port")" --ui-port "$(cat "$dir/ui-port")" \
    --log-level error "${file[@]}"
}

temporal_prepare() { # under the lock
  local port=$1 memory=$2 fresh=$3 dir first
  dir=$(temporal_dir)
  if [ "$fresh" = yes ]; then temporal_stop; rm -rf "$dir"; fi
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "Temporal is already running at port $(cat "$dir/port")"
    return 0
  fi
  mkdir -p "$dir/data"; own "$dir"
  if [ "$memory" = yes ]; then touch "$dir/in-memory"; else rm -f "$dir/in-memory"; fi
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 7233)}
  while ! { port_free "$first" && port_free $((first + 1000)); }; do
    [ -z "$port" ] || die "port $port or $((port + 1000)) (its web page) is taken; choose another with --port"
    first=$((first + 1))
  done
  echo "$first" >"$dir/port"
  echo $((first + 1000)) >"$dir/ui-port"
  temporal_launch
}

temporal_check() {
  local dir; dir=$(temporal_dir)
  alive "$dir/server.pid" || return 2
  port_free "$(cat "$dir/port")" && return 1
  HOME=$dir/data timeout 20 "$(temporal_program)" operator namespace describe --namespace default \
    --address "127.0.0.1:$(cat "$dir/port")" >/dev/null 2>&1 || return 1
}

temporal_wait() { until_ready Temporal "$(temporal_dir)/server.log" temporal_check; }

temporal_start() { # temporal_start PORT MEMORY FRESH
  local since; since=$(now)
  install_temporal
  with_lock temporal_prepare "$@"
  temporal_wait
  say "Temporal answers at 127.0.0.1:$(cat "$(temporal_dir)/port") after $(seconds_since "$since")"
}

temporal_stop() { halt "$(temporal_dir)/server.pid" INT; }

temporal_address() { echo "127.0.0.1:$(cat "$(temporal_dir)/port")"; }
