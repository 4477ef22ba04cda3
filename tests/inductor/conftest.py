"""Each test starts with no compiled code."""

from compiled import fresh_dynamo  # noqa: F401
