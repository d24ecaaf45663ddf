# OpenSearch: named clusters of one or three nodes. HTTP on PORT…, transport on PORT+100….
# With OPENSEARCH_SPACES=yes node I runs in the network namespace NAME-nI that the caller has made, and who made it joins the ports too.

opensearch_dir() { echo "$STATE/opensearch/$1"; }
opensearch_dist() { echo "$CACHE/opensearch-$OPENSEARCH_VERSION"; }

find_jdk() { # the home of a JDK that OpenSearch accepts
  local home version
  for home in "${OPENSEARCH_JAVA_HOME:-}" "${JAVA_HOME:-}" /usr/lib/jvm/*; do
    [ -x "$home/bin/java" ] && [ -r "$home/release" ] || continue
    version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$home/release")
    if [ "${version:-0}" -ge "$OPENSEARCH_JDK_MINIMUM" ]; then echo "$home"; return; fi
  done
  return 1
}

opensearch_configure() { # opensearch_configure NAME I
  local name=$1 i=$2 dir nodes port names='' hosts='' k d
  dir=$(opensearch_dir "$name") nodes=$(cat "$dir/nodes") port=$(cat "$dir/port") d=$dir/n$i
  for ((k = 1; k <= nodes; k++)); do
    names+="${names:+,}n$k" hosts+="${hosts:+,}127.0.0.1:$((port + 99 + k))"
  done
  mkdir -p "$d"/{data,logs,tmp,snapshots}
  rm -rf "$d/config"
  cp -r "$(opensearch_dist)/config" "$d/config"
  mkdir -p "$d/config/jvm.options.d"
  sed -i "s#logs/#$d/logs/#g; s#HeapDumpPath=data#HeapDumpPath=$d/data#" "$d/config/jvm.options"
  {
    echo "cluster.name: forestay-$name"
    echo "node.name: n$i"
    echo "path.data: $d/data"
    echo "path.logs: $d/logs"
    echo "path.repo: $d/snapshots"
    echo "network.host: 127.0.0.1"
    echo "http.port: $((port + i - 1))"
    echo "transport.port: $((port + 99 + i))"
    # Without a cluster manager no write is taken. With `all` every node would throw its shards away and recover them
    # whenever the manager dies, and a shard can hang in that; what is read is a hint in any case.
    echo "cluster.no_cluster_manager_block: write"
    # A developer's disk is often fuller than the watermark allows.
    echo "cluster.routing.allocation.disk.threshold_enabled: false"
    if [ "$nodes" = 1 ]; then
      echo "discovery.type: single-node"
    else
      echo "discovery.seed_hosts: [$hosts]"
      echo "cluster.initial_cluster_manager_nodes: [$names]"
    fi
  } >"$d/config/opensearch.yml"
  own "$d"
}

opensearch_launch() { # opensearch_launch NAME I: one node, if it is not running
  local name=$1 i=$2 dir d
  dir=$(opensearch_dir "$name") d=$dir/n$i
  if alive "$d.pid"; then return 0; fi
  opensearch_configure "$name" "$i"
  local as=__as_server within=()
  if [ -n "${OPENSEARCH_SPACES:-}" ]; then
    as=__as_self # only root may go there
    within=(ip netns exec "$name-n$i" setpriv "--reuid=$UNPRIVILEGED_UID" "--regid=$UNPRIVILEGED_UID" --clear-groups --)
  fi
  DETACH_AS=$as detach "$d.pid" "$d.log" "${within[@]}" env -i PATH="$PATH" LANG=C.UTF-8 \
    OPENSEARCH_JAVA_HOME="$(find_jdk)" OPENSEARCH_PATH_CONF="$d/config" OPENSEARCH_TMPDIR="$d/tmp" \
    OPENSEARCH_JAVA_OPTS="$(cat "$dir/java-opts")" "$(opensearch_dist)/bin/opensearch"
}

opensearch_prepare() { # under the lock: settle name, ports and heap, then launch every node that is not running
  local name=$1 nodes=$2 port=$3 heap=$4 quick=$5 fresh=$6 dir i first before
  dir=$(opensearch_dir "$name")
  if [ "$fresh" = yes ]; then opensearch_stop "$name"; rm -rf "$dir"; fi
  before=$(cat "$dir/nodes" 2>/dev/null || echo "")
  if [ -n "$before" ] && [ -n "$nodes" ] && [ "$before" != "$nodes" ]; then
    die "OpenSearch $name has $before node(s), not $nodes; start it with --fresh to begin anew (this wipes its data)"
  fi
  nodes=${nodes:-${before:-1}}
  mkdir -p "$dir"
  if ! opensearch_any_alive "$name"; then
    first=${port:-$(cat "$dir/port" 2>/dev/null || opensearch_default_port "$name")}
    while [ -z "${OPENSEARCH_SPACES:-}" ] && ! { ports_free "$first" "$nodes" && ports_free $((first + 100)) "$nodes"; }; do
      [ -z "$port" ] || die "port $port or a neighbour is taken; choose another with --port"
      first=$((first + 10))
    done
    echo "$first" >"$dir/port"
    echo "$nodes" >"$dir/nodes"
    # C1 alone starts sooner, for tests of function; the default JIT is for figures.
    echo "-Xms$heap -Xmx$heap$([ "$quick" = no ] || echo ' -XX:TieredStopAtLevel=1')" >"$dir/java-opts"
  elif [ -n "$port" ] && [ "$port" != "$(cat "$dir/port")" ]; then
    die "OpenSearch $name is already running at port $(cat "$dir/port")"
  fi
  for ((i = 1; i <= nodes; i++)); do opensearch_launch "$name" "$i"; done
}

opensearch_default_port() { if [ "$1" = one ]; then echo 9200; else echo 9210; fi; }

opensearch_any_alive() {
  local p
  for p in "$(opensearch_dir "$1")"/n*.pid; do if alive "$p"; then return 0; fi; done
  return 1
}

opensearch_check() { # opensearch_check NAME FIRST LAST: do these nodes answer, in one cluster with every living one?
  local name=$1 first=$2 last=$3 dir port i living=0
  dir=$(opensearch_dir "$name") port=$(cat "$dir/port")
  for ((i = first; i <= last; i++)); do alive "$dir/n$i.pid" || return 2; done
  for i in "$dir"/n*.pid; do if alive "$i"; then living=$((living + 1)); fi; done
  for ((i = first; i <= last; i++)); do
    curl -fs -m 5 "http://127.0.0.1:$((port + i - 1))/_cluster/health?wait_for_nodes=$living&wait_for_status=yellow&timeout=2s" \
      2>/dev/null | grep -q '"timed_out":false' || return 1
  done
}

opensearch_wait() { # opensearch_wait NAME [I]: for all nodes, or for node I while others may be dead
  local dir; dir=$(opensearch_dir "$1")
  until_ready "OpenSearch $1" "$dir/n${2:-1}.log" opensearch_check "$1" "${2:-1}" "${2:-$(cat "$dir/nodes")}"
}

opensearch_start() { # opensearch_start NAME NODES PORT HEAP QUICK FRESH
  local since nodes port; since=$(now)
  install_opensearch
  with_lock opensearch_prepare "$@"
  opensearch_wait "$1"
  nodes=$(cat "$(opensearch_dir "$1")/nodes") port=$(cat "$(opensearch_dir "$1")/port")
  say "OpenSearch $1, $nodes node(s), answers at 127.0.0.1:$port after $(seconds_since "$since")"
}

opensearch_stop() {
  local p dir; dir=$(opensearch_dir "$1")
  for p in "$dir"/n*.pid; do if alive "$p"; then kill "$(pid_of "$p")"; fi; done # all at once, then wait for each
  for p in "$dir"/n*.pid; do [ -e "$p" ] && halt "$p" TERM; done
  return 0
}

opensearch_names() { local d; for d in "$STATE"/opensearch/*/; do [ -d "$d" ] && basename "$d"; done; return 0; }

opensearch_addresses() { # comma-separated, of every node
  local dir nodes port i list=''
  dir=$(opensearch_dir "$1") nodes=$(cat "$dir/nodes") port=$(cat "$dir/port")
  for ((i = 0; i < nodes; i++)); do list+="${list:+,}http://127.0.0.1:$((port + i))"; done
  echo "$list"
}
