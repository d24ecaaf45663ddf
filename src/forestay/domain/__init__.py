"""What Forestay decides, with no clock, disk, network or logging."""
