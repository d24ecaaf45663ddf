"""Slurm by its own commands: sbatch, scancel, squeue, sacct."""
