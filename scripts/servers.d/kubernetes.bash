# Kubernetes' control plane: API server, controller manager and scheduler, built from their Go modules, on etcd. There is no kubelet: kwok keeps the nodes
# those with the label type=simulated alive, and whoever tests plays their kubelets. Without the label, or kwok, a node becomes unreachable within 20 seconds,
# and its pods are evicted 5 seconds later.

kubernetes_dir() { echo "$STATE/kubernetes"; }
kubernetes_programs() { echo "$CACHE/kubernetes-$KUBERNETES_VERSION"; }
kubernetes_log() { echo "$(kubernetes_dir)/log/server.log"; }
kubernetes_pidfile() { echo "$(kubernetes_dir)/$1.pid"; }
kubernetes_port() { echo $(($(cat "$(kubernetes_dir)/port") + $1)); }

KUBERNETES_PARTS="etcd server controllers scheduler kwok"
KUBERNETES_NODE='{"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110", "example.org/gpu": "2"}'

install_kubernetes() {
  local folder since work; folder=$(kubernetes_programs) since=$(now)
  need etcd etcd-server
  need openssl openssl
  need curl curl
  if [ -x "$folder/kwok" ]; then return 0; fi
  say "building Kubernetes $KUBERNETES_VERSION (a quarter of an hour the first time)"
  work=$(mktemp -d "$CACHE/build.XXXXXX")
  (
    # Outside of its repository Kubernetes' own libraries are modules with versions of their own.
    export GOFLAGS=-mod=mod CGO_ENABLED=0
    local module=k8s.io/kubernetes@v$KUBERNETES_VERSION library
    cd "$work" && run_go mod download "$module" && cp -r "$(run_go env GOMODCACHE)/$module" source && chmod -R u+w source && cd source &&
      rm -rf vendor go.work go.work.sum || exit 1
    while read -r library; do
      run_go mod edit -dropreplace "$library" -require "$library@v0.${KUBERNETES_VERSION#1.}" || exit 1
    done < <(sed -n -E 's#^[[:space:]]*(k8s.io/[a-z0-9-]+) => ./staging.*#\1#p' go.mod)
    run_go build -p "${FORESTAY_BUILD_BESIDE:-$(nproc)}" -o "$work/built/" ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler &&
      GOFLAGS='' GOBIN=$work/built run_go install "sigs.k8s.io/kwok/cmd/kwok@v$KWOK_VERSION"
  ) >&2 </dev/null || { rm -rf "$work"; die "Kubernetes could not be built"; }
  chmod -R a+rX "$work/built"
  mv -T "$work/built" "$folder" 2>/dev/null || [ -x "$folder/kwok" ] || die "cannot place $folder"
  rm -rf "$work"
  say "Kubernetes $KUBERNETES_VERSION is built after $(seconds_since "$since")"
}

kubernetes_secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

kubernetes_configure() { # certificates, tokens, and the file by which its parts find the API server
  local dir; dir=$(kubernetes_dir)
  mkdir -p "$dir/log" "$dir/data" "$dir/tls"
  if [ ! -s "$dir/tls/server.crt" ]; then
    (
      cd "$dir/tls"
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=forestay-test-ca \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
      openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=kube-apiserver -keyout server.key -out server.csr
      printf 'subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes.default.svc\nauthorityKeyIdentifier=keyid\n' >server.ext
      openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile server.ext -out server.crt
      openssl genrsa -out accounts.key 2048
    ) >"$dir/log/tls.log" 2>&1 || die "no certificates could be made: $dir/log/tls.log"
    # The agent has no rights but those that a test gives it.
    kubernetes_secret >"$dir/admin-token"
    kubernetes_secret >"$dir/agent-token"
    printf '%s,admin,admin,"system:masters"\n%s,site-agent,site-agent,"sites"\n' "$(cat "$dir/admin-token")" "$(cat "$dir/agent-token")" >"$dir/tokens.csv"
  fi
  cp "$dir/tls/ca.crt" "$dir/ca.crt"
  echo "https://127.0.0.1:$(kubernetes_port 0)" >"$dir/address"
  cat >"$dir/admin.conf" <<C
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "$(cat "$dir/address")", certificate-authority: "$dir/ca.crt"}}]
users: [{name: admin, user: {token: "$(cat "$dir/admin-token")"}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
C
  # A stage that no pod has: kwok leaves the pods alone.
  cat >"$dir/kwok.yaml" <<'C'
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: no-pod}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchLabels: {kwok.x-k8s.io/no-such: pod}}
  next: {statusTemplate: "phase: Running"}
C
  chmod 600 "$dir"/*-token "$dir/tokens.csv" "$dir/admin.conf"
  own "$dir"
}

kubernetes_launch() { # every part that does not run
  local dir bin etcd; dir=$(kubernetes_dir) bin=$(kubernetes_programs) etcd=http://127.0.0.1:$(kubernetes_port 1)
  local -a base=(env -i PATH="$PATH" HOME="$dir/data")
  alive "$dir/etcd.pid" || detach "$dir/etcd.pid" "$dir/log/etcd.log" "${base[@]}" "$(command -v etcd)" --name test --data-dir "$dir/data/etcd" \
    --listen-client-urls "$etcd" --advertise-client-urls "$etcd" --listen-peer-urls "http://127.0.0.1:$(kubernetes_port 2)" \
    --initial-advertise-peer-urls "http://127.0.0.1:$(kubernetes_port 2)" --initial-cluster "test=http://127.0.0.1:$(kubernetes_port 2)" --unsafe-no-fsync
  alive "$dir/server.pid" || detach "$dir/server.pid" "$dir/log/server.log" "${base[@]}" "$bin/kube-apiserver" --etcd-servers "$etcd" \
    --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$(kubernetes_port 0)" --endpoint-reconciler-type none \
    --tls-cert-file "$dir/tls/server.crt" --tls-private-key-file "$dir/tls/server.key" --token-auth-file "$dir/tokens.csv" --authorization-mode RBAC \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/tls/accounts.key" \
    --service-account-signing-key-file "$dir/tls/accounts.key" --service-cluster-ip-range 10.0.0.0/24 \
    --default-not-ready-toleration-seconds 5 --default-unreachable-toleration-seconds 5
  local -a client=(--kubeconfig "$dir/admin.conf" --authentication-kubeconfig "$dir/admin.conf" --authorization-kubeconfig "$dir/admin.conf"
    --bind-address 127.0.0.1 --cert-dir "$dir/data/tls" --leader-elect=false)
  alive "$dir/controllers.pid" || detach "$dir/controllers.pid" "$dir/log/controllers.log" "${base[@]}" "$bin/kube-controller-manager" "${client[@]}" \
    --secure-port "$(kubernetes_port 3)" --service-account-private-key-file "$dir/tls/accounts.key" --root-ca-file "$dir/ca.crt" \
    --node-monitor-period 2s --node-monitor-grace-period 20s
  alive "$dir/scheduler.pid" || detach "$dir/scheduler.pid" "$dir/log/scheduler.log" "${base[@]}" "$bin/kube-scheduler" "${client[@]}" \
    --secure-port "$(kubernetes_port 4)"
  alive "$dir/kwok.pid" || detach "$dir/kwok.pid" "$dir/log/kwok.log" "${base[@]}" "$bin/kwok" --kubeconfig "$dir/admin.conf" --config "$dir/kwok.yaml" \
    --manage-nodes-with-label-selector type=simulated --node-lease-duration-seconds 20 --node-ip 127.0.0.1 --server-address "127.0.0.1:$(kubernetes_port 5)"
}

kubernetes_call() { # kubernetes_call METHOD PATH [BODY]: as the administrator
  local dir; dir=$(kubernetes_dir)
  curl -sS --fail-with-body --max-time 20 --cacert "$dir/ca.crt" -H @- -H 'Content-Type: application/json' -X "$1" "$(cat "$dir/address")$2" \
    ${3:+--data "$3"} <<<"Authorization: Bearer $(cat "$dir/admin-token")"
}

kubernetes_check() { # the parts run, the account of pods exists, and every node is ready
  local dir part ready; dir=$(kubernetes_dir)
  for part in $KUBERNETES_PARTS; do
    # Its parts give up while the API server, or etcd, is not there yet.
    alive "$dir/$part.pid" || { kubernetes_launch; return 1; }
  done
  kubernetes_call GET /readyz >/dev/null 2>&1 || return 1
  kubernetes_call GET /api/v1/namespaces/default/serviceaccounts/default >/dev/null 2>&1 || return 1
  kubernetes_nodes || return 1
  ready=$(kubernetes_call GET /api/v1/nodes 2>/dev/null | python3 -c '
import json, sys
nodes = json.load(sys.stdin)["items"]
print(sum(any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", ())) and not n["spec"].get("taints") for n in nodes))
') || return 1
  [ "$ready" -ge "$(cat "$dir/nodes")" ]
}

kubernetes_nodes() { # simulated, each of 8 CPUs, 32 GiB and two devices
  local dir number; dir=$(kubernetes_dir)
  for ((number = 1; number <= $(cat "$dir/nodes"); number++)); do
    kubernetes_call GET "/api/v1/nodes/n$number" >/dev/null 2>&1 && continue
    kubernetes_call POST /api/v1/nodes "$(printf '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n%s", "labels": {"type": "simulated", "kubernetes.io/hostname": "n%s"}},
      "status": {"capacity": %s, "allocatable": %s}}' "$number" "$number" "$KUBERNETES_NODE" "$KUBERNETES_NODE")" >/dev/null 2>&1 || return 1
  done
}

kubernetes_wait() { until_ready Kubernetes "$(kubernetes_log)" kubernetes_check; }

kubernetes_prepare() { # under the lock
  local port=$1 fresh=$2 nodes=$3 dir first; dir=$(kubernetes_dir)
  if [ "$fresh" = yes ]; then kubernetes_stop; rm -rf "$dir"; fi
  mkdir -p "$dir"
  if alive "$dir/server.pid"; then
    [ -z "$port" ] || [ "$port" = "$(cat "$dir/port")" ] || die "Kubernetes is already running at port $(cat "$dir/port")"
    return 0
  fi
  first=${port:-$(cat "$dir/port" 2>/dev/null || echo 16443)}
  while ! ports_free "$first" 6; do
    [ -z "$port" ] || die "one of the ports $port to $((port + 5)) is taken; choose another with --port"
    first=$((first + 10))
  done
  echo "$first" >"$dir/port"
  echo "${nodes:-3}" >"$dir/nodes"
  kubernetes_configure
  kubernetes_launch
}

kubernetes_start() { # kubernetes_start PORT FRESH NODES
  local since; since=$(now)
  install_kubernetes
  with_lock kubernetes_prepare "$@"
  kubernetes_wait
  say "Kubernetes answers at $(cat "$(kubernetes_dir)/address") after $(seconds_since "$since")"
}

kubernetes_stop() {
  local part
  for part in kwok scheduler controllers server etcd; do halt "$(kubernetes_pidfile "$part")" TERM; done
}
