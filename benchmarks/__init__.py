"""tidegate beside its peers, in CPU time and in ratios taken in the same run. Not part of the package."""
