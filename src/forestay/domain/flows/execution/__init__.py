"""How a run of a flow moves: state, events in, commands out."""
