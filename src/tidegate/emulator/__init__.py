"""An OpenAI-compatible server that takes time as a GPU replica does, many replicas per process."""
