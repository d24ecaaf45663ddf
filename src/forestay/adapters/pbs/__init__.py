"""PBS (OpenPBS, PBS Professional) by its own commands: qstat, qselect, qdel."""
