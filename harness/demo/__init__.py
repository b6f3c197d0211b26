"""The program of ``make demo``: a controller cluster of real processes loses masters and its active controller."""
