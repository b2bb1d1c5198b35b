"""The configuration written down: JSON, its digest, and the schema of it all."""

import hashlib
import json
from typing import Any

from monarch.config.schema import Config


def to_json(config: Config) -> str:
    """Return the effective configuration as canonical JSON."""
    values = config.model_dump(mode="json", by_alias=True)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def digest(config: Config) -> str:
    """Return 16 hex digits that differ when two configurations do."""
    return hashlib.blake2b(to_json(config).encode(), digest_size=8).hexdigest()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    schema = Config.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
