#!/bin/sh
# After an installation or an upgrade. Starts nothing; processes that run get the new version.
set -e
[ "${1:-}" != abort-upgrade ] || exit 0
/opt/forestay/bin/python -m compileall -qq /opt/forestay/lib || true
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart forestay-server.service forestay-reconciler.service forestay-orchestrator.service
fi
