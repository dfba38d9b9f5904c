"""How do bytes come in and go out? HTTP/1.1 on both sides, event streams and TLS; no policy, no routes."""
