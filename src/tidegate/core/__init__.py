"""What do we say? Requests, events, commands, refusals and records: values that every layer shares."""
