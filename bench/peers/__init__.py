"""Other systems to be measured beside Forestay, each in processes and an environment of its own."""
