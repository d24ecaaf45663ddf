#!/bin/sh
# Before a removal by dpkg (`remove`, `upgrade` …) or rpm (0, or 1 at an upgrade, after the new version's files are there).
set -e
case ${1:-} in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now forestay-server.service forestay-reconciler.service forestay-orchestrator.service || true
  fi
  ;;
1) exit 0 ;;
esac
find /opt/forestay/lib -name __pycache__ -type d -prune -exec rm -rf {} +
