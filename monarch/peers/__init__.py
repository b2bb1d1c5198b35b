"""How the agents of a job find, trust and tell each other."""
