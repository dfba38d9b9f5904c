"""How exact is the simulator where queueing theory is? `make exactness` writes docs/exactness.md."""
