"""`tidegate plan`: the question as options, the answer as sentences, tables, JSON, HTML, a configuration."""
