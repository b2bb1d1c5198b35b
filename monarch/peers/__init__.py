"""Discovery, authentication and messages between the agents of a job."""
