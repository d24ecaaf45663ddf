# Toxiproxy: a proxy whose failures (latency, reset, black hole) are set over HTTP.

toxiproxy_dir() { echo "$STATE/toxiproxy"; }
toxiproxy_program() { echo "$CACHE/toxiproxy-$TOXIPROXY_VERSION/server"; }

toxiproxy_launch() {
  local dir; dir=$(toxiproxy_dir)
  if alive "$dir/server.pid"; then return 0; fi
  detach "$dir/server.pid" "$dir/server.log" env -i PATH="$PATH" "$(toxiproxy_program)" -host 127.0.0.1 -port "$(cat "$dir/port")"
}

toxiproxy_prepare() { # under the lock
  local port=$1 dir first
  dir=$(toxiproxy_dir)
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "Toxiproxy is already running at port $(cat "$dir/port")"
    return 0
  fi
  mkdir -p "$dir"
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 8474)}
  while ! port_free "$first"; do
    [ -z "$port" ] || die "port $port is taken; choose another with --port"
    first=$((first + 1))
  done
  echo "$first" >"$dir/port"
  toxiproxy_launch
}

toxiproxy_check() {
  alive "$(toxiproxy_dir)/server.pid" || return 2
  curl -fs -m 5 "http://127.0.0.1:$(cat "$(toxiproxy_dir)/port")/version" >/dev/null 2>&1 || return 1
}

toxiproxy_wait() { until_ready Toxiproxy "$(toxiproxy_dir)/server.log" toxiproxy_check; }

toxiproxy_start() { # toxiproxy_start PORT
  local since; since=$(now)
  install_toxiproxy
  with_lock toxiproxy_prepare "$@"
  toxiproxy_wait
  say "Toxiproxy answers at 127.0.0.1:$(cat "$(toxiproxy_dir)/port") after $(seconds_since "$since")"
}

toxiproxy_stop() { halt "$(toxiproxy_dir)/server.pid" TERM; }

toxiproxy_address() { echo "http://127.0.0.1:$(cat "$(toxiproxy_dir)/port")"; }
