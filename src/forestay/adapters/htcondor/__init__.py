"""HTCondor by its own commands: condor_q, condor_history, condor_rm."""
