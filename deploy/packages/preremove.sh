#!/bin/sh
# Before a removal by dpkg (`remove`, `upgrade` …) or rpm (0, or 1 at an upgrade, after the new version's files are there).
set -e
case ${1:-} in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now forestay-watcher.service || true
    for name in forestay-pilot forestay-site; do
      for unit in $(systemctl list-units --all --plain --no-legend "$name@*.service" | cut -d ' ' -f 1); do systemctl disable --now "$unit" || true; done
    done
  fi
  # Users first: from here on they call Slurm's own commands.
  rm -f /etc/profile.d/forestay-shim.sh
  ;;
1) exit 0 ;;
esac
find /opt/forestay/lib -name __pycache__ -type d -prune -exec rm -rf {} +
