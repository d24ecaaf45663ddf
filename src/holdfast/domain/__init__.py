"""What Holdfast decides, with no clock, disk, network or logging."""
