"""Records in stores: Redis, Cassandra and S3, by their keys."""
