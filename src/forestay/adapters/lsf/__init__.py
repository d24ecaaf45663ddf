"""IBM Spectrum LSF by its own commands: bjobs, bhist, bkill."""
