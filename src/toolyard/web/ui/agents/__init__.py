"""Pages of agents: ``overview`` lists and shows them, ``form`` creates and changes stored ones."""
