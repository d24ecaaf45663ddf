# /etc/profile.d/forestay-shim.sh: puts the shim in front of Slurm's commands. FORESTAY_SHIM=off turns it off for one command.
case ":$PATH:" in
*:/opt/forestay/shim:*) ;;
*) export PATH="/opt/forestay/shim:$PATH" ;;
esac
