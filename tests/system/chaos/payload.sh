#!/usr/bin/env bash
# One job of the campaign: tells the effect ledger that it starts, works, has its effect, writes its output, tells that it ends.
#   payload.sh SECONDS FAILS     the first FAILS attempts end with exit code 7 instead of an effect
# The ledger answers each line once it is on disk. A connection that closes without END is a payload that was killed.
set -u
exec 3<>"/dev/tcp/127.0.0.1/$CHAOS_LEDGER" || exit 90

tell() { # tell WORD [DETAIL]
  printf '%s %s %s %s %s %s\n' "$1" "$FORESTAY_JOB" "$FORESTAY_ATTEMPT" "$FORESTAY_CLAIM" "$FORESTAY_FENCE" "${2:--}" >&3
  read -r _ <&3 || exit 91
}

tell START $$
sleep "$1"
if [ "$FORESTAY_ATTEMPT" -le "$2" ]; then
  tell END 7
  exit 7
fi
tell EFFECT
printf '%s %s %s\n' "$FORESTAY_JOB" "$FORESTAY_FENCE" "$FORESTAY_CLAIM" >result.txt
sleep 0.05 # so that some are killed between the effect and the end
tell END 0
