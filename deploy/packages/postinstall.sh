#!/bin/sh
# After an installation or an upgrade, by dpkg (`configure`) or rpm (a count). Starts nothing. A watcher that runs gets the new version; pilots and site
# agents are left alone, since a pilot that is restarted ends its jobs.
set -e
[ "${1:-}" != abort-upgrade ] || exit 0
systemd-sysusers forestay.conf
systemd-tmpfiles --create forestay.conf
# Processes may not write there, and would compile what they import at each start. Templates of other packages are no programs.
/opt/forestay/bin/python -m compileall -qq /opt/forestay/lib || true
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart forestay-watcher.service
fi
