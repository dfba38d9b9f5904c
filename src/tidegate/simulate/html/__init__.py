"""The report of a simulation as one HTML file: no script, nothing fetched."""
