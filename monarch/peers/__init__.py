"""How the agents of a job find and authenticate each other, and what they exchange."""
