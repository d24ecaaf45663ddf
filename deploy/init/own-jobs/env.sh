# Read this file where you submit: . @FOLDER@/env.sh
# It puts the shim in front of Slurm's commands for this shell only.
export PATH="@FOLDER@/shim:$PATH"
export FORESTAY_SHIM_SPOOL="@FOLDER@/spool"
