"""Other systems to be measured beside Holdfast, each in processes and an environment of its own."""
